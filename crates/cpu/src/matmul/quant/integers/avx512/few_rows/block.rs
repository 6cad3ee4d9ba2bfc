//! Blocks with a scale of their own.

use std::arch::x86_64::*;

use super::super::sixteen;
use super::BlockGroup;
use crate::weights::quant::block_format::{BitWidth, BlockFormat};
use crate::weights::quant::packing::{DOT_BYTES, DOTS_PER_BLOCK};

pub(super) struct OneBlock {
    format: BlockFormat,
    block: *const u8,
}

impl BlockGroup for OneBlock {
    const BLOCKS: usize = 1;
    const PARTS: usize = 1;
    type Format = BlockFormat;

    #[inline(always)]
    unsafe fn at(format: BlockFormat, data: *const u8, i: usize) -> Self {
        // SAFETY: an existing block.
        Self { format, block: unsafe { data.add(i * format.block_bytes()) } }
    }

    #[inline(always)]
    unsafe fn half(&self, _: usize, half: usize) -> [__m512i; 4] {
        // SAFETY: inside of the block.
        unsafe {
            let bytes = |at: usize| _mm512_loadu_si512(self.block.add(at * DOT_BYTES).cast());
            let four_bits = |values| {
                let low = _mm512_set1_epi8(15);
                [_mm512_and_si512(values, low), _mm512_and_si512(_mm512_srli_epi16::<4>(values), low)]
            };
            match self.format.width {
                BitWidth::Four => {
                    let ([a, b], [c, d]) = (four_bits(bytes(2 * half)), four_bits(bytes(2 * half + 1)));
                    [a, b, c, d]
                }
                BitWidth::Five => {
                    let ([a, b], [c, d]) = (four_bits(bytes(2 * half)), four_bits(bytes(2 * half + 1)));
                    let all = bytes(DOTS_PER_BLOCK / 2);
                    // One bit for each group of four k, those of this half first.
                    let fifth = if half == 0 { all } else { _mm512_srli_epi16::<4>(all) };
                    let with = |values, bits| _mm512_or_si512(values, _mm512_and_si512(bits, _mm512_set1_epi8(16)));
                    [
                        with(a, _mm512_slli_epi16::<4>(fifth)),
                        with(b, _mm512_slli_epi16::<3>(fifth)),
                        with(c, _mm512_slli_epi16::<2>(fifth)),
                        with(d, _mm512_slli_epi16::<1>(fifth)),
                    ]
                }
                BitWidth::Eight => [bytes(4 * half), bytes(4 * half + 1), bytes(4 * half + 2), bytes(4 * half + 3)],
            }
        }
    }

    #[inline(always)]
    unsafe fn scales(&self, _: usize) -> (__m512, __m512) {
        // SAFETY: behind the values are the scales, and behind them the minima.
        unsafe {
            let at = self.block.add(self.format.packed_bytes());
            let scales = sixteen(self.format.scales, at);
            let minima = match self.format.minima {
                true => sixteen(self.format.scales, at.add(self.format.scale_bytes())),
                false => _mm512_mul_ps(scales, _mm512_set1_ps(-f32::from(self.format.zero_point))),
            };
            (scales, minima)
        }
    }

    #[inline(always)]
    fn bytes(&self, _: usize) -> (*const u8, usize) {
        (self.block, self.format.block_bytes())
    }
}
