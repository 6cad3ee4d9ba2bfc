//! Elementwise functions, from operations that every instruction set rounds alike. Several vectors take each step together: one
//! alone would wait for its last step most of the time.

#![allow(clippy::needless_range_loop, reason = "vectors are numbers here; indexed loops unroll into registers")]

use super::lanes::{Lanes, MAGIC};

/// So many, where there are [registers](Lanes::MANY_REGISTERS) for them.
pub(crate) const TOGETHER: usize = 4;

/// 2ˣ for x ≤ 0 with a relative error below 2⁻²¹. Below -126 it gives the smallest normal number, not zero.
///
/// x = n + f, |f| ≤ ½; 2ˣ = 2ⁿ · p(f).
#[allow(clippy::approx_constant, reason = "coefficients of one polynomial, fitted together")]
#[inline(always)]
pub(crate) fn exp2_of_negative<L: Lanes, const N: usize>(x: [L; N]) -> [L; N] {
    let magic = L::splat(MAGIC);
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

/// x · σ(x) = x / (1 + 2⁻ˡ), l = x · log₂ e, with a relative error below 10⁻⁶.
///
/// -l = n - g, |g| ≤ ½; 2⁻ˡ = 2ⁿ · p(g).
#[allow(clippy::approx_constant, reason = "coefficients of one polynomial, fitted together")]
#[inline(always)]
pub(crate) fn silu<L: Lanes, const N: usize>(x: [L; N]) -> [L; N] {
    let magic = L::splat(MAGIC);
    let (mut g, mut biased) = (x, x);
    for i in 0..N {
        // Beyond that 1 + 2⁻ˡ is 1, and nearly the largest number. A NaN returns when it is divided.
        let x = x[i].max(L::splat(-87.0)).min(L::splat(86.0));
        biased[i] = x.fma(L::splat(-std::f32::consts::LOG2_E), magic);
        // log₂ e in two parts.
        g[i] = x.fma(L::splat(std::f32::consts::LOG2_E), biased[i].sub(magic));
        g[i] = x.fma(L::splat(1.925_963e-8), g[i]);
    }
    let mut p = [L::splat(-1.326_469e-3); N];
    for coefficient in [9.671_5e-3, -5.550_733_6e-2, 2.402_224_2e-1, -6.931_47e-1, 1.0] {
        for i in 0..N {
            p[i] = p[i].fma(g[i], L::splat(coefficient));
        }
        L::keep_in_step(&mut p);
    }
    for i in 0..N {
        p[i] = x[i].div(p[i].times_pow2_of_magic(biased[i]).add(L::splat(1.0)));
    }
    p
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::isa::{Isa, Kernel};
    use crate::cpu::lanes::LANES;

    struct OfAll<'a>(&'a [f32]);

    impl Kernel for OfAll<'_> {
        type Output = Vec<[f32; 4]>;

        #[inline(always)]
        fn run<L: Lanes>(self) -> Self::Output {
            let one = |x: f32| {
                let spread: [f32; LANES] = std::array::from_fn(|i| x * (i as f32 - 3.0));
                // SAFETY: 16 lanes.
                let spread = unsafe { L::load(spread.as_ptr()) };
                let silu = silu([L::splat(x)])[0].to_array()[9];
                let exp2 = exp2_of_negative([L::splat(x).min(L::splat(0.0))])[0].to_array()[5];
                let together = [L::splat(-1.5), L::splat(x), L::splat(0.0), L::splat(-x)];
                assert_eq!(super::silu(together)[1].to_array()[0].to_bits(), silu.to_bits());
                let negative = [L::splat(-9.0), L::splat(-1.0), L::splat(0.0), L::splat(x).min(L::splat(0.0))];
                assert_eq!(exp2_of_negative(negative)[3].to_array()[0].to_bits(), exp2.to_bits());
                [silu, exp2, spread.sum(), spread.largest()]
            };
            self.0.iter().map(|&x| one(x)).collect()
        }
    }

    #[test]
    fn close_to_f64_and_equal_everywhere() {
        let inputs: Vec<f32> =
            (-3000..3000).map(|i| i as f32 * 0.029).chain([0.0, -0.0, 1e-20, f32::NEG_INFINITY]).collect();
        let reference = Isa::Portable.run(OfAll(&inputs));
        for (&x, &[silu, exp2, sum, largest]) in inputs.iter().zip(&reference) {
            let expected = f64::from(x).min(0.0).exp2();
            assert!((f64::from(exp2) - expected).abs() <= expected * 4e-7 + 1.2e-38, "2^{x} = {exp2}");
            if x.is_finite() {
                let expected = f64::from(x) / (1.0 + (-f64::from(x)).exp());
                assert!((f64::from(silu) - expected).abs() <= expected.abs() * 1e-6 + 1e-35, "silu({x}) = {silu}");
                assert!((sum - 72.0 * x).abs() <= x.abs() * 1e-4);
                assert_eq!(largest, if x > 0.0 { 12.0 * x } else { -3.0 * x });
            }
        }
        let bits = |rows: &[[f32; 4]]| rows.iter().map(|row| row.map(f32::to_bits)).collect::<Vec<_>>();
        for isa in Isa::available() {
            assert_eq!(bits(&isa.run(OfAll(&inputs))), bits(&reference), "{isa}");
        }
    }
}
