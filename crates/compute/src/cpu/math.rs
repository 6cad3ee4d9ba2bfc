//! Elementwise functions, from operations that every instruction set rounds alike. Several vectors take each step together: one
//! alone would wait for its last step most of the time.

#![allow(clippy::needless_range_loop, reason = "vectors are numbers here; indexed loops unroll into registers")]

use super::lanes::Lanes;

/// So many, where there are [registers](Lanes::MANY_REGISTERS) for them.
pub(crate) const TOGETHER: usize = 4;

/// eˣ with a relative error below 2⁻²². Below -87.3 it gives the smallest normal number's neighbourhood, not zero.
///
/// x = n·ln 2 + r, |r| ≤ ln 2 / 2; eˣ = 2ⁿ · p(r).
#[inline(always)]
pub(crate) fn exp<L: Lanes, const N: usize>(x: [L; N]) -> [L; N] {
    // Added to a small number it leaves its nearest integer in the low mantissa bits.
    let magic = L::splat(12_582_912.0);
    let (mut r, mut biased) = (x, x);
    for i in 0..N {
        // In this order a NaN stays one.
        let x = L::splat(88.3).min(L::splat(-87.3).max(x[i]));
        biased[i] = x.fma(L::splat(std::f32::consts::LOG2_E), magic);
        let n = biased[i].sub(magic);
        // ln 2 in two parts: n times the first is exact.
        r[i] = n.fma(L::splat(2.121_944_4e-4), n.fma(L::splat(-355.0 / 512.0), x));
    }
    let mut p = [L::splat(1.987_569_1e-4); N];
    for coefficient in [1.398_199_9e-3, 8.333_452e-3, 4.166_579_6e-2, 1.666_666_5e-1, 0.5] {
        for i in 0..N {
            p[i] = p[i].fma(r[i], L::splat(coefficient));
        }
    }
    for i in 0..N {
        p[i] = p[i].fma(r[i].mul(r[i]), r[i].add(L::splat(1.0))).mul(biased[i].pow2_of_magic());
    }
    p
}

/// 2ˣ for x ≤ 0 with a relative error below 2⁻²¹. Below -126 it gives the smallest normal number, not zero.
///
/// x = n + f, |f| ≤ ½; 2ˣ = 2ⁿ · p(f).
#[allow(clippy::approx_constant, reason = "coefficients of one polynomial, fitted together")]
#[inline(always)]
pub(crate) fn exp2_of_negative<L: Lanes, const N: usize>(x: [L; N]) -> [L; N] {
    let magic = L::splat(12_582_912.0);
    let (mut f, mut biased) = (x, x);
    for i in 0..N {
        // In this order a NaN stays one.
        let x = L::splat(-126.0).max(x[i]);
        biased[i] = x.add(magic);
        f[i] = x.sub(biased[i].sub(magic));
    }
    let mut p = [L::splat(1.326_469e-3); N];
    for coefficient in [9.671_5e-3, 5.550_733_6e-2, 2.402_224_2e-1, 6.931_47e-1, 1.0] {
        for i in 0..N {
            p[i] = p[i].fma(f[i], L::splat(coefficient));
        }
    }
    for i in 0..N {
        p[i] = p[i].mul(biased[i].pow2_of_magic());
    }
    p
}

/// x · σ(x)
#[inline(always)]
pub(crate) fn silu<L: Lanes, const N: usize>(x: [L; N]) -> [L; N] {
    let mut silu = x;
    for i in 0..N {
        silu[i] = L::splat(0.0).sub(x[i]);
    }
    silu = exp(silu);
    for i in 0..N {
        silu[i] = x[i].div(L::splat(1.0).add(silu[i]));
    }
    silu
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
                let (exp, silu) = (exp([L::splat(x)])[0].to_array()[3], silu([L::splat(x)])[0].to_array()[9]);
                let exp2 = exp2_of_negative([L::splat(x).min(L::splat(0.0))])[0].to_array()[5];
                let together = [L::splat(-1.5), L::splat(x), L::splat(0.0), L::splat(-x)];
                assert_eq!(super::exp(together)[1].to_array()[0].to_bits(), exp.to_bits());
                assert_eq!(super::silu(together)[1].to_array()[0].to_bits(), silu.to_bits());
                let negative = [L::splat(-9.0), L::splat(-1.0), L::splat(0.0), L::splat(x).min(L::splat(0.0))];
                assert_eq!(exp2_of_negative(negative)[3].to_array()[0].to_bits(), exp2.to_bits());
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
