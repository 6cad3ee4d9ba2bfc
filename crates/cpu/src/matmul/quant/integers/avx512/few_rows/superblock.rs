//! Superblocks, whose small scales share one for all of their blocks.

use std::arch::x86_64::*;

use super::super::super::superblock_format::{FOUR_BITS, TWO_BITS};
use super::super::sixteen;
use super::BlockGroup;
use crate::simd::vector::LANES;
use crate::weights::quant::block_format::Precision;
use crate::weights::quant::packing::DOT_BYTES;
use crate::weights::quant::superblock::{HALVES_BYTES, SMALL_BYTES, SUPER_BLOCKS, SuperblockFormat};

pub(super) struct Superblock {
    format: SuperblockFormat,
    values: *const u8,
    small: *const u8,
    scale: __m512,
    /// Minima where the type has them, otherwise the factor that turns a scale into a minimum.
    minimum: __m512,
}

impl BlockGroup for Superblock {
    const BLOCKS: usize = SUPER_BLOCKS;
    const PARTS: usize = 2;
    type Format = SuperblockFormat;

    #[inline(always)]
    unsafe fn at(format: SuperblockFormat, data: *const u8, i: usize) -> Self {
        // SAFETY: an existing superblock: behind all values are small scales, scales and minima.
        unsafe {
            let values = data.add(i * format.superblock_bytes());
            let small = values.add(SUPER_BLOCKS * format.packed_bytes());
            let minimum = match format.has_minima() {
                true => sixteen(Precision::Half, small.add(SMALL_BYTES + HALVES_BYTES)),
                false => _mm512_set1_ps(-f32::from(format.zero_point())),
            };
            Self { format, values, small, scale: sixteen(Precision::Half, small.add(SMALL_BYTES)), minimum }
        }
    }

    #[inline(always)]
    unsafe fn half(&self, number: usize, half: usize) -> [__m512i; 4] {
        // SAFETY: the caller's promise.
        unsafe {
            let values = self.values.add(number * self.format.packed_bytes());
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
            match self.format {
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

    /// Products of 11 bits and 8 are exact.
    #[inline(always)]
    unsafe fn scales(&self, part: usize) -> (__m512, __m512) {
        // SAFETY: the caller's promise.
        unsafe {
            let small = _mm_loadu_si128(self.small.add(part * LANES).cast());
            let floats = |bytes| _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(bytes));
            if self.format.has_minima() {
                let half = |bytes| floats(_mm_and_si128(bytes, _mm_set1_epi8(15)));
                let (scales, minima) = (half(small), half(_mm_srli_epi16::<4>(small)));
                return (_mm512_mul_ps(self.scale, scales), _mm512_mul_ps(self.minimum, minima));
            }
            let scales = _mm512_mul_ps(self.scale, floats(small));
            (scales, _mm512_mul_ps(scales, self.minimum))
        }
    }

    /// An eighth of all, scales included.
    #[inline(always)]
    fn bytes(&self, number: usize) -> (*const u8, usize) {
        let eighth = self.format.superblock_bytes() / SUPER_BLOCKS;
        (self.values.wrapping_add(number * eighth), eighth)
    }
}
