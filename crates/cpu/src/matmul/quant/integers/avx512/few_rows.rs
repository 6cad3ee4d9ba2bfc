//! One or two rows, multiplied with packed blocks as these are read: expanding them to memory first takes longer.

use std::arch::x86_64::*;

use super::super::expanded_block::PREFETCH_BYTES;
use super::super::product::IntegerProduct;
use super::few_rows_superblock::rows_of_superblocks;
use super::{Dots, begin, end, sixteen};
use crate::weights::quant::block_format::{BitWidth, BlockFormat};
use crate::weights::quant::format::QuantFormat;
use crate::weights::quant::packing::{DOT_BYTES, DOTS_PER_BLOCK};

/// The most rows that are multiplied without expanding blocks first.
pub(in super::super) const FEW_ROWS: usize = 2;

/// Multiplies rows with the panel at `data`.
///
/// # Safety
/// Pointers are good for the shapes that the product states, its whole panel is readable at `data`, and the machine has AVX-512
/// with VNNI.
#[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
pub(in super::super) unsafe fn few_rows(product: &IntegerProduct, format: QuantFormat, data: *const u8) {
    // SAFETY: the caller's promise.
    unsafe {
        match (format, product.rows) {
            (QuantFormat::Blocks(format), 1) => rows_of_blocks::<1>(product, format, data),
            (QuantFormat::Blocks(format), _) => rows_of_blocks::<FEW_ROWS>(product, format, data),
            (QuantFormat::Superblocks(format), 1) => rows_of_superblocks::<1>(product, format, data),
            (QuantFormat::Superblocks(format), _) => {
                rows_of_superblocks::<FEW_ROWS>(product, format, data);
            }
        }
    }
}

/// # Safety
/// As above, with `R` rows.
#[inline(always)]
unsafe fn rows_of_blocks<const R: usize>(product: &IntegerProduct, format: BlockFormat, data: *const u8) {
    // SAFETY: the caller's promise.
    unsafe {
        let (low, fifth) = (_mm512_set1_epi8(15), _mm512_set1_epi8(16));
        let mut sums = begin::<R>(product);
        for (number, left) in product.left().iter().enumerate() {
            let block = data.add(number * format.block_bytes());
            for line in (0..format.block_bytes()).step_by(64) {
                _mm_prefetch::<_MM_HINT_T0>(block.wrapping_add(PREFETCH_BYTES + line).cast());
            }
            let bytes = |at: usize| _mm512_loadu_si512(block.add(at * DOT_BYTES).cast());
            // Chains of even and of odd groups of four k: with one chain a single row would wait for its own sums.
            let (mut even, mut odd) = (Dots::<R>::zero(), Dots::<R>::zero());
            match format.width {
                BitWidth::Four => {
                    for two in 0..DOTS_PER_BLOCK / 2 {
                        let values = bytes(two);
                        even.add(left, 2 * two, _mm512_and_si512(values, low));
                        odd.add(left, 2 * two + 1, _mm512_and_si512(_mm512_srli_epi16::<4>(values), low));
                    }
                }
                BitWidth::Five => {
                    let mut fifths = bytes(DOTS_PER_BLOCK / 2);
                    for two in 0..DOTS_PER_BLOCK / 2 {
                        let values = bytes(two);
                        // The lowest bit to bit 4, and the one above it.
                        let first = _mm512_and_si512(_mm512_slli_epi16::<4>(fifths), fifth);
                        let second = _mm512_and_si512(_mm512_slli_epi16::<3>(fifths), fifth);
                        even.add(left, 2 * two, _mm512_or_si512(_mm512_and_si512(values, low), first));
                        let high = _mm512_and_si512(_mm512_srli_epi16::<4>(values), low);
                        odd.add(left, 2 * two + 1, _mm512_or_si512(high, second));
                        fifths = _mm512_srli_epi16::<2>(fifths);
                    }
                }
                BitWidth::Eight => {
                    for two in 0..DOTS_PER_BLOCK / 2 {
                        even.add(left, 2 * two, bytes(2 * two));
                        odd.add(left, 2 * two + 1, bytes(2 * two + 1));
                    }
                }
            }
            let scales = scales(format, block);
            even.plus(&odd).scale(left, 0, scales, &mut sums);
        }
        end(product, &sums);
    }
}

/// Scales and minima of a block.
///
/// # Safety
/// A whole block is readable, and the machine has AVX-512.
#[inline(always)]
unsafe fn scales(format: BlockFormat, block: *const u8) -> (__m512, __m512) {
    // SAFETY: behind the values are the scales, and behind them the minima.
    unsafe {
        let at = block.add(format.packed_bytes());
        let scales = sixteen(format.scales, at);
        let minima = match format.minima {
            true => sixteen(format.scales, at.add(format.scale_bytes())),
            false => _mm512_mul_ps(scales, _mm512_set1_ps(-f32::from(format.zero_point))),
        };
        (scales, minima)
    }
}
