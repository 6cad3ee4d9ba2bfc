//! KV in int8, for bf16 matmuls. Per token and head, K and V each: x ≈ scale · q, |q| ≤ 127, scale = largest |x| / 127. It depends
//! on that token alone, not on the batch or chunk in which the token was computed.
//!
//! ```text
//!   q of (k, column), width columns          pairs of k; 16 columns of the first k, then the same of the second:
//!
//!     k    0 0 0 … 0   1 1 1 … 1   0  0  …      two loads make a vector of pairs of bf16
//!     col  0 1 2 … 15  0 1 2 … 15  16 17 …
//! ```
//!
//! q is exact in bf16. Scales are multiplied with scores and with the weights of softmax, in f32.

use baton_core::PAGE_TOKENS;
use baton_fabric::{Half, PageOrder};
use half::bf16;

use super::KvElement;
use crate::simd::vector::{LANES, Lanes, load_some, padded};

const LARGEST: f32 = 127.0;

impl KvElement for i8 {
    const NUMERICS: &'static str = "-kv-int8-v1";
    const PAGE_ORDER: PageOrder = PageOrder::InterleavedInt8;
    const SCALES_KEYS: bool = true;

    #[inline(always)]
    unsafe fn store_key<L: Lanes>(key: &[f32], head: *mut i8, token: usize) {
        let scale = scale_of::<L>(key);
        for (i, values) in key.chunks(LANES).enumerate() {
            let mut quantized = [0; LANES];
            // SAFETY: 16 values fit.
            unsafe { quantize::<L>(values, scale).store_i8(quantized.as_mut_ptr()) };
            for (k, value) in quantized.into_iter().enumerate().take(values.len()) {
                // SAFETY: the caller's promise.
                unsafe { *head.add(index(i * LANES + k, token, PAGE_TOKENS)) = value };
            }
        }
        // SAFETY: the caller's promise.
        unsafe { *scales(head, padded(key.len())).add(token) = scale };
    }

    #[inline(always)]
    unsafe fn store_value<L: Lanes>(value: &[f32], head: *mut i8, token: usize) {
        let (scale, width) = (scale_of::<L>(value), padded(value.len()));
        for (i, values) in value.chunks(LANES).enumerate() {
            // SAFETY: the caller's promise; 16 columns of one k are side by side.
            unsafe { quantize::<L>(values, scale).store_i8(head.add(index(token, i * LANES, width))) };
        }
        // SAFETY: the caller's promise.
        unsafe { *scales(head, width).add(token) = scale };
    }

    /// The scale, then the quantized values.
    unsafe fn export(head: *const i8, half: Half, token: usize, head_dim: usize, bytes: &mut Vec<u8>) {
        let width = padded(head_dim);
        // SAFETY: an existing token; no writer by the caller's promise.
        bytes.extend_from_slice(&unsafe { *scales(head.cast_mut(), width).add(token) }.to_le_bytes());
        for dim in 0..head_dim {
            let index = match half {
                Half::Keys => index(dim, token, PAGE_TOKENS),
                Half::Values => index(token, dim, width),
            };
            // SAFETY: an existing dimension of it.
            bytes.push(unsafe { *head.add(index) }.cast_unsigned());
        }
    }
}

#[inline(always)]
fn index(k: usize, column: usize, width: usize) -> usize {
    (k / 2 * width + column / LANES * LANES) * 2 + k % 2 * LANES + column % LANES
}

/// The scales of the 32 tokens of a page, which follow the quantized values of one head. `width` is the head's, in whole vectors.
#[inline(always)]
pub(crate) fn scales(head: *mut i8, width: usize) -> *mut f32 {
    head.wrapping_add(PAGE_TOKENS * width).cast()
}

/// 0 where all quantized values are 0; NaN where a value is not finite.
#[inline(always)]
fn scale_of<L: Lanes>(head: &[f32]) -> f32 {
    let zero = L::splat(0.0);
    let (mut largest, mut finite) = (zero, zero);
    for values in head.chunks(LANES) {
        let values = load_some::<L>(values);
        largest = largest.max(values.max(zero.sub(values)));
        finite = values.fma(zero, finite);
    }
    // Each of these has the same bits on every instruction set; other NaNs would not.
    match largest.largest() / LARGEST {
        _ if finite.sum().is_nan() => f32::NAN,
        scale if scale < f32::MIN_POSITIVE => 0.0,
        scale => scale,
    }
}

#[inline(always)]
fn quantize<L: Lanes>(values: &[f32], scale: f32) -> L {
    if scale == 0.0 || scale.is_nan() {
        return L::splat(0.0);
    }
    let quantized = load_some::<L>(values).div(L::splat(scale));
    quantized.max(L::splat(-LARGEST)).min(L::splat(LARGEST))
}

/// Converts a matrix to bf16 in the order of [pairs](crate::weights::element), exactly.
///
/// # Safety
/// `elements`, a multiple of 32, are readable at `quantized` and writable at `to`.
#[inline(always)]
pub(crate) unsafe fn widen<L: Lanes>(quantized: *const i8, elements: usize, to: *mut bf16) {
    for i in (0..elements).step_by(2 * LANES) {
        // SAFETY: 32 of them, the caller's promise.
        unsafe {
            L::store_bf16_pairs(L::load_i8(quantized.add(i)), L::load_i8(quantized.add(i + LANES)), to.add(i).cast())
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simd::isa::Isa;
    use crate::simd::vector::Kernel;
    use crate::weights::element::Element;

    /// More than a vector, and less than two.
    const DIM: usize = 22;
    const WIDTH: usize = 32;

    /// Quantized values and scale of one token.
    struct Stored<'a>(&'a [f32], Half, usize);

    impl Kernel for Stored<'_> {
        type Output = (Vec<i8>, f32);

        #[inline(always)]
        fn run<L: Lanes>(self) -> (Vec<i8>, f32) {
            let Self(values, half, token) = self;
            let mut head = vec![0_u32; PAGE_TOKENS * (WIDTH + 4) / 4];
            let first = head.as_mut_ptr().cast();
            let mut bytes = Vec::new();
            // SAFETY: a page of one head.
            unsafe {
                match half {
                    Half::Keys => i8::store_key::<L>(values, first, token),
                    Half::Values => i8::store_value::<L>(values, first, token),
                }
                i8::export(first, half, token, DIM, &mut bytes);
            }
            let (scale, quantized) = bytes.split_at(4);
            (quantized.iter().map(|value| value.cast_signed()).collect(), f32::from_le_bytes(scale.try_into().unwrap()))
        }
    }

    #[test]
    fn values_and_scales() {
        // The last dimensions (the others are 0), the scale, and the quantized values of the last dimensions.
        let table: [(&[f32], f32, &[i8]); 11] = [
            (&[0.0, -0.0], 0.0, &[0, 0]),
            (&[127.0, -127.0, 1.0, -1.0], 1.0, &[127, -127, 1, -1]),
            // Ties go to even.
            (&[254.0, 1.0, 3.0, -5.0, 7.0], 2.0, &[127, 0, 2, -2, 4]),
            (&[0.5, 0.25], 0.5 / 127.0, &[127, 64]),
            (&[3e38, -1e38], 3e38 / 127.0, &[127, -42]),
            // As small as a scale can be, and smaller.
            (&[1.5e-36, -1e-36], 1.5e-36 / 127.0, &[127, -85]),
            (&[1e-37, -1e-36], 1e-36 / 127.0, &[0, 0]),
            (&[1e-40, -1e-40], 0.0, &[0, 0]),
            (&[f32::INFINITY, 1.0], f32::NAN, &[0, 0]),
            (&[1.0, f32::NEG_INFINITY], f32::NAN, &[0, 0]),
            (&[1.0, f32::NAN, 2.0], f32::NAN, &[0, 0, 0]),
        ];
        for (isa, half) in Isa::available().into_iter().flat_map(|isa| [(isa, Half::Keys), (isa, Half::Values)]) {
            for (last, scale, quantized) in table {
                let mut values = vec![0.0; DIM - last.len()];
                let mut expected = vec![0; DIM - last.len()];
                values.extend(last);
                expected.extend(quantized);
                let scale = if scale < f32::MIN_POSITIVE { 0.0 } else { scale };
                let expected = if scale == 0.0 { vec![0; DIM] } else { expected };
                let got = isa.run(Stored(&values, half, 31));
                assert_eq!((got.0, got.1.to_bits()), (expected, scale.to_bits()), "{isa}, {half:?}: {last:?}");
            }
        }
    }

    struct Widened<'a>(&'a [i8]);

    impl Kernel for Widened<'_> {
        type Output = Vec<bf16>;

        #[inline(always)]
        fn run<L: Lanes>(self) -> Vec<bf16> {
            let mut wide = vec![bf16::NAN; self.0.len()];
            // SAFETY: as many of both.
            unsafe { widen::<L>(self.0.as_ptr(), self.0.len(), wide.as_mut_ptr()) };
            wide
        }
    }

    #[test]
    fn converted_values_are_exact_and_in_pairs() {
        let (depth, width) = (8, 48);
        let value = |k: usize, column: usize| (k * 48 + column) as u8 as i8;
        let mut quantized = vec![0; depth * width];
        for (k, column) in (0..depth).flat_map(|k| (0..width).map(move |column| (k, column))) {
            quantized[index(k, column, width)] = value(k, column);
        }
        for isa in Isa::available() {
            let wide = isa.run(Widened(&quantized));
            for (k, column) in (0..depth).flat_map(|k| (0..width).map(move |column| (k, column))) {
                let at = bf16::index(k, column, width);
                assert_eq!(wide[at].to_f32(), f32::from(value(k, column)), "{isa}: ({k}, {column})");
            }
        }
    }
}
