//! Elementwise functions, from operations that every instruction set rounds alike.

use super::lanes::Lanes;

/// eˣ with a relative error below 2⁻²². Below -87.3 it gives the smallest normal number's neighbourhood, not zero.
///
/// x = n·ln 2 + r, |r| ≤ ln 2 / 2; eˣ = 2ⁿ · p(r).
#[inline(always)]
pub(crate) fn exp<L: Lanes>(x: L) -> L {
    // Added to a small number it leaves its nearest integer in the low mantissa bits.
    let magic = L::splat(12_582_912.0);
    // In this order a NaN stays one.
    let x = L::splat(88.3).min(L::splat(-87.3).max(x));
    let biased = x.fma(L::splat(std::f32::consts::LOG2_E), magic);
    let n = biased.sub(magic);
    // ln 2 in two parts: n times the first is exact.
    let r = n.fma(L::splat(-355.0 / 512.0), x);
    let r = n.fma(L::splat(2.121_944_4e-4), r);
    let mut p = L::splat(1.987_569_1e-4);
    for coefficient in [1.398_199_9e-3, 8.333_452e-3, 4.166_579_6e-2, 1.666_666_5e-1, 0.5] {
        p = p.fma(r, L::splat(coefficient));
    }
    let p = p.fma(r.mul(r), r.add(L::splat(1.0)));
    p.mul(biased.pow2_of_magic())
}

/// 2ˣ for x ≤ 0 with a relative error below 2⁻²¹. Below -126 it gives the smallest normal number, not zero.
///
/// x = n + f, |f| ≤ ½; 2ˣ = 2ⁿ · p(f).
#[allow(clippy::approx_constant, reason = "coefficients of one polynomial, fitted together")]
#[inline(always)]
pub(crate) fn exp2_of_negative<L: Lanes>(x: L) -> L {
    let magic = L::splat(12_582_912.0);
    // In this order a NaN stays one.
    let x = L::splat(-126.0).max(x);
    let biased = x.add(magic);
    let f = x.sub(biased.sub(magic));
    let mut p = L::splat(1.326_469e-3);
    for coefficient in [9.671_5e-3, 5.550_733_6e-2, 2.402_224_2e-1, 6.931_47e-1, 1.0] {
        p = p.fma(f, L::splat(coefficient));
    }
    p.mul(biased.pow2_of_magic())
}

/// x · σ(x)
#[inline(always)]
pub(crate) fn silu<L: Lanes>(x: L) -> L {
    let e = exp(L::splat(0.0).sub(x));
    x.div(L::splat(1.0).add(e))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::isa::{Isa, Kernel};
    use crate::cpu::lanes::LANES;

    struct OfAll<'a>(&'a [f32]);

    impl Kernel for OfAll<'_> {
        type Output = Vec<[f32; 5]>;

        #[inline(always)]
        fn run<L: Lanes>(self) -> Self::Output {
            let one = |x: f32| {
                let spread: [f32; LANES] = std::array::from_fn(|i| x * (i as f32 - 3.0));
                // SAFETY: 16 lanes.
                let spread = unsafe { L::load(spread.as_ptr()) };
                let (exp, silu) = (exp(L::splat(x)).to_array()[3], silu(L::splat(x)).to_array()[9]);
                let exp2 = exp2_of_negative(L::splat(x).min(L::splat(0.0))).to_array()[5];
                [exp, silu, exp2, spread.sum(), spread.largest()]
            };
            self.0.iter().map(|&x| one(x)).collect()
        }
    }

    #[test]
    fn close_to_f64_and_equal_everywhere() {
        let inputs: Vec<f32> =
            (-3000..3000).map(|i| i as f32 * 0.029).chain([0.0, -0.0, 1e-20, f32::NEG_INFINITY]).collect();
        let reference = Isa::Portable.run(OfAll(&inputs));
        for (&x, &[exp, silu, exp2, sum, largest]) in inputs.iter().zip(&reference) {
            let expected = f64::from(x).exp();
            assert!((f64::from(exp) - expected).abs() <= expected * 3e-7 + 2e-38, "exp({x}) = {exp}");
            let expected = f64::from(x).min(0.0).exp2();
            assert!((f64::from(exp2) - expected).abs() <= expected * 4e-7 + 1.2e-38, "2^{x} = {exp2}");
            if x.is_finite() {
                let expected = f64::from(x) / (1.0 + (-f64::from(x)).exp());
                assert!((f64::from(silu) - expected).abs() <= expected.abs() * 1e-6 + 1e-35, "silu({x}) = {silu}");
                assert!((sum - 72.0 * x).abs() <= x.abs() * 1e-4);
                assert_eq!(largest, if x > 0.0 { 12.0 * x } else { -3.0 * x });
            }
        }
        let bits = |rows: &[[f32; 5]]| rows.iter().map(|row| row.map(f32::to_bits)).collect::<Vec<_>>();
        for isa in Isa::available() {
            assert_eq!(bits(&isa.run(OfAll(&inputs))), bits(&reference), "{isa}");
        }
    }
}
