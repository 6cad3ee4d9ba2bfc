//! Elementwise functions, from operations that every instruction set rounds alike. Several vectors take each step together: one
//! alone would wait for its last step most of the time.

#![allow(clippy::needless_range_loop, reason = "vectors are numbers here; indexed loops unroll into registers")]

use crate::simd::vector::{Lanes, MAGIC};

/// Rows in step, where there are [registers](Lanes::MANY_REGISTERS) for them.
pub(crate) const TOGETHER: usize = 4;

/// 2ᶠ for |f| ≤ ½ as a polynomial, the highest power first.
#[allow(clippy::approx_constant, reason = "coefficients of one polynomial, fitted together")]
const EXP2: [f32; 6] = [1.326_469e-3, 9.671_5e-3, 5.550_733_6e-2, 2.402_224_2e-1, 6.931_47e-1, 1.0];

/// 2ˣ for x ≤ 0 with a relative error below 2⁻²¹. Below -126 it gives the smallest normal number, not zero.
///
/// x = n + f, |f| ≤ ½; 2ˣ = 2ⁿ · p(f).
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
    let mut p = [L::splat(EXP2[0]); N];
    for coefficient in EXP2[1..].iter().copied() {
        for i in 0..N {
            p[i] = p[i].fma(f[i], L::splat(coefficient));
        }
    }
    for i in 0..N {
        p[i] = p[i].mul(biased[i].pow2_of_magic());
    }
    p
}

/// x · σ(x) = x / (1 + 2⁻ˡ), l = x · log₂ e, with a relative error below 5 · 10⁻⁷ for x ≥ -87. Below, it is x · 1.7 · 10⁻³⁸, not zero.
///
/// -l = n + f, |f| ≤ ½; 2⁻ˡ = 2ⁿ · p(f).
#[inline(always)]
pub(crate) fn silu<L: Lanes, const N: usize>(x: [L; N]) -> [L; N] {
    let magic = L::splat(MAGIC);
    let (mut f, mut biased) = (x, x);
    for i in 0..N {
        // Beyond that 1 + 2⁻ˡ is 1, and nearly the largest number. A NaN returns when it is divided.
        let x = x[i].max(L::splat(-87.0)).min(L::splat(86.0));
        biased[i] = x.fma(L::splat(-std::f32::consts::LOG2_E), magic);
        // log₂ e in two parts.
        f[i] = x.fma(L::splat(-std::f32::consts::LOG2_E), magic.sub(biased[i]));
        f[i] = x.fma(L::splat(-1.925_963e-8), f[i]);
    }
    let mut p = [L::splat(EXP2[0]); N];
    for coefficient in EXP2[1..].iter().copied() {
        for i in 0..N {
            p[i] = p[i].fma(f[i], L::splat(coefficient));
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
    use crate::simd::isa::Isa;
    use crate::simd::vector::{Kernel, LANES};

    struct OfAll<'a>(&'a [f32]);

    impl Kernel for OfAll<'_> {
        type Output = Vec<[f32; 4]>;

        #[inline(always)]
        fn run<L: Lanes>(self) -> Self::Output {
            let one = |x: f32| {
                let spread = if x.abs() < 1e30 { x } else { 0.0 };
                let spread: [f32; LANES] = std::array::from_fn(|i| spread * (i as f32 - 3.0));
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
        let beyond = [87.0, 88.0, 100.0, 1e4, 3e38, f32::INFINITY].into_iter().flat_map(|x| [x, -x]);
        let inputs: Vec<f32> =
            (-3000..3000).map(|i| i as f32 * 0.029).chain([0.0, -0.0, 1e-20, f32::NAN]).chain(beyond).collect();
        let reference = Isa::Portable.run(OfAll(&inputs));
        for (&x, &[silu, exp2, sum, largest]) in inputs.iter().zip(&reference) {
            let expected = f64::from(x).min(0.0).exp2();
            if !x.is_nan() {
                assert!((f64::from(exp2) - expected).abs() <= expected * 4e-7 + 1.2e-38, "2^{x} = {exp2}");
            }
            let expected = f64::from(x) / (1.0 + (-f64::from(x)).exp());
            match x {
                88.0.. => assert_eq!(silu, x),
                -87.0..88.0 => {
                    assert!((f64::from(silu) - expected).abs() <= expected.abs() * 5e-7, "silu({x}) = {silu}");
                }
                ..-87.0 => assert!(silu <= 0.0 && silu >= x * 2e-38, "silu({x}) = {silu}"),
                _ => assert!(silu.is_nan(), "silu({x}) = {silu}"),
            }
            if x.abs() < 1e30 {
                assert!((sum - 72.0 * x).abs() <= x.abs() * 1e-4);
                assert_eq!(largest, if x > 0.0 { 12.0 * x } else { -3.0 * x });
            }
        }
        // The sign of a NaN is not promised.
        let bits = |row: [f32; 4]| row.map(|value| if value.is_nan() { u32::MAX } else { value.to_bits() });
        for isa in Isa::available() {
            for ((x, got), &expected) in inputs.iter().zip(isa.run(OfAll(&inputs))).zip(&reference) {
                assert_eq!(bits(got), bits(expected), "{isa}, {x}");
            }
        }
    }
}
