//! One or two rows, multiplied with packed superblocks as these are read.

use std::arch::x86_64::*;

use super::super::expanded_block::PREFETCH_BYTES;
use super::super::product::IntegerProduct;
use super::super::superblock_format::{FOUR_BITS, TWO_BITS};
use super::{Dots, begin, end, sixteen};
use crate::simd::vector::LANES;
use crate::weights::quant::block_format::Precision;
use crate::weights::quant::packing::DOT_BYTES;
use crate::weights::quant::superblock::{HALVES_BYTES, SMALL_BYTES, SUPER_BLOCKS, SuperblockFormat};

/// # Safety
/// Pointers are good for `R` rows of the shapes that the product states, its whole panel is readable at `data`, and the machine has
/// the instructions.
#[inline(always)]
pub(super) unsafe fn rows_of_superblocks<const R: usize>(
    product: &IntegerProduct,
    format: SuperblockFormat,
    data: *const u8,
) {
    let eighth = format.superblock_bytes() / SUPER_BLOCKS;
    // SAFETY: the caller's promise.
    unsafe {
        let mut sums = begin::<R>(product);
        for (i, left) in product.left().chunks(SUPER_BLOCKS).enumerate() {
            let superblock = data.add(i * format.superblock_bytes());
            let scales = Scales::of(format, superblock);
            for (number, left) in left.iter().enumerate() {
                let values = superblock.add(number * format.packed_bytes());
                for line in (0..eighth).step_by(64) {
                    _mm_prefetch::<_MM_HINT_T0>(
                        superblock.wrapping_add(PREFETCH_BYTES + number * eighth + line).cast(),
                    );
                }
                let mut parts = [Dots::<R>::zero(), Dots::<R>::zero()];
                for half in 0..2 {
                    let [a, b, c, d] = half_block(format, values, half);
                    parts[0].add(left, 4 * half, a);
                    parts[0].add(left, 4 * half + 1, b);
                    parts[1].add(left, 4 * half + 2, c);
                    parts[1].add(left, 4 * half + 3, d);
                }
                parts[0].scale(left, 1, scales.of_part(2 * number), &mut sums);
                parts[1].scale(left, 2, scales.of_part(2 * number + 1), &mut sums);
            }
        }
        end(product, &sums);
    }
}

/// Half of a block's values: two groups of four k of the first 16 k, and two of the others.
///
/// # Safety
/// The block's values are readable, and the machine has AVX-512.
#[inline(always)]
unsafe fn half_block(format: SuperblockFormat, values: *const u8, half: usize) -> [__m512i; 4] {
    // SAFETY: the caller's promise.
    unsafe {
        let line = |at: usize| _mm512_loadu_si512(values.add(at).cast());
        let masked = |values, bits| _mm512_and_si512(values, _mm512_set1_epi8(bits));
        let two_bits = |values| {
            [
                masked(values, 3),
                masked(_mm512_srli_epi16::<2>(values), 3),
                masked(_mm512_srli_epi16::<4>(values), 3),
                masked(_mm512_srli_epi16::<6>(values), 3),
            ]
        };
        match format {
            SuperblockFormat::Two => two_bits(line(half * DOT_BYTES)),
            SuperblockFormat::Three => {
                let [a, b, c, d] = two_bits(line(half * DOT_BYTES));
                let all = line(TWO_BITS);
                // One bit for each group of four k, those of this half first.
                let third = if half == 0 { all } else { _mm512_srli_epi16::<4>(all) };
                [
                    _mm512_or_si512(a, masked(_mm512_slli_epi16::<2>(third), 4)),
                    _mm512_or_si512(b, masked(_mm512_slli_epi16::<1>(third), 4)),
                    _mm512_or_si512(c, masked(third, 4)),
                    _mm512_or_si512(d, masked(_mm512_srli_epi16::<1>(third), 4)),
                ]
            }
            SuperblockFormat::Six => {
                let (first, second) = (line(2 * half * DOT_BYTES), line((2 * half + 1) * DOT_BYTES));
                let high = line(FOUR_BITS + half * DOT_BYTES);
                [
                    _mm512_or_si512(masked(first, 15), masked(_mm512_slli_epi16::<4>(high), 48)),
                    _mm512_or_si512(
                        masked(_mm512_srli_epi16::<4>(first), 15),
                        masked(_mm512_slli_epi16::<2>(high), 48),
                    ),
                    _mm512_or_si512(masked(second, 15), masked(high, 48)),
                    _mm512_or_si512(
                        masked(_mm512_srli_epi16::<4>(second), 15),
                        masked(_mm512_srli_epi16::<2>(high), 48),
                    ),
                ]
            }
        }
    }
}

/// Scales of a superblock.
struct Scales {
    small: *const u8,
    scale: __m512,
    /// Minima where the type has them, otherwise the factor that turns a scale into a minimum.
    minimum: __m512,
    has_minima: bool,
}

impl Scales {
    /// # Safety
    /// A whole superblock is readable, and the machine has AVX-512.
    #[inline(always)]
    unsafe fn of(format: SuperblockFormat, superblock: *const u8) -> Self {
        let has_minima = format.has_minima();
        // SAFETY: behind all values are small scales, scales and minima.
        unsafe {
            let small = superblock.add(SUPER_BLOCKS * format.packed_bytes());
            let minimum = match has_minima {
                true => sixteen(Precision::Half, small.add(SMALL_BYTES + HALVES_BYTES)),
                false => _mm512_set1_ps(-f32::from(format.zero_point())),
            };
            Self { small, scale: sixteen(Precision::Half, small.add(SMALL_BYTES)), minimum, has_minima }
        }
    }

    /// Scales and minima of 16 k. Products of 11 bits and 8 are exact.
    ///
    /// # Safety
    /// The superblock is still readable, and `part` is below 16.
    #[inline(always)]
    unsafe fn of_part(&self, part: usize) -> (__m512, __m512) {
        // SAFETY: the caller's promise.
        unsafe {
            let small = _mm_loadu_si128(self.small.add(part * LANES).cast());
            let floats = |bytes| _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(bytes));
            if self.has_minima {
                let half = |bytes| floats(_mm_and_si128(bytes, _mm_set1_epi8(15)));
                let (scales, minima) = (half(small), half(_mm_srli_epi16::<4>(small)));
                return (_mm512_mul_ps(self.scale, scales), _mm512_mul_ps(self.minimum, minima));
            }
            let scales = _mm512_mul_ps(self.scale, floats(small));
            (scales, _mm512_mul_ps(scales, self.minimum))
        }
    }
}
