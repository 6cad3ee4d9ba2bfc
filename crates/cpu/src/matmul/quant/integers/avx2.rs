//! With AVX2, products of bytes are added up in 16 bits. The sum of two k fits whatever the value. With values below 32 the sum of a
//! whole block fits, below 64 that of half a block; these are widened once.

#![allow(
    clippy::needless_range_loop,
    reason = "rows, halves and groups are numbers here; adapters of iterators would not be inlined across target features"
)]

use std::arch::x86_64::*;

use super::expanded_block::{ExpandedBlock, k4_of};
use super::product::IntegerProduct;
use super::rows::{ByteStrip, HIGH};
use crate::simd::vector::LANES;
use crate::weights::layout::GROUP;
use crate::weights::quant::packing::{DOT_BYTES, DOT_K, DOTS_PER_BLOCK};

/// Columns 0..8 and 8..16.
type Halves<T> = [T; 2];
/// Of high and of low bytes.
type Bytes<T> = [T; 2];

/// All rows of a strip.
///
/// # Safety
/// Pointers are good for the shapes that the product states, and the machine has AVX2 and FMA.
#[target_feature(enable = "avx2,fma")]
pub(super) unsafe fn strip(product: &IntegerProduct, blocks: &[ExpandedBlock]) {
    let mut row = 0;
    while row < product.rows {
        // SAFETY: the caller's promise.
        unsafe {
            row += match (product.rows - row, product.parts, product.small_values) {
                (2.., 2, _) => rows::<2, 2, true>(product, row, blocks),
                (2.., _, true) => rows::<2, 1, true>(product, row, blocks),
                (2.., _, false) => rows::<2, 1, false>(product, row, blocks),
                (_, 2, _) => rows::<1, 2, true>(product, row, blocks),
                (_, _, true) => rows::<1, 1, true>(product, row, blocks),
                (_, _, false) => rows::<1, 1, false>(product, row, blocks),
            }
        }
    }
}

/// `R` rows from `first` on.
///
/// # Safety
/// As above, and the rows are the product's.
#[inline]
#[target_feature(enable = "avx2,fma")]
unsafe fn rows<const R: usize, const PARTS: usize, const SMALL: bool>(
    product: &IntegerProduct,
    first: usize,
    blocks: &[ExpandedBlock],
) -> usize {
    // SAFETY: the caller's promise.
    unsafe {
        let c = |row: usize, half: usize| product.c.add((first + row) * product.c_stride + half * LANES / 2);
        let mut sums: [Halves<__m256>; R] = [[_mm256_setzero_ps(); 2]; R];
        if product.resume {
            for row in 0..R {
                for half in 0..2 {
                    sums[row][half] = _mm256_loadu_ps(c(row, half));
                }
            }
        }
        for (left, block) in product.left().iter().zip(blocks) {
            for part in 0..PARTS {
                let dots = dots::<R, PARTS, SMALL>(left, first, block, part);
                for row in 0..R {
                    let unit = _mm256_set1_ps(left.units[first + row]);
                    let row_sum = _mm256_set1_ps(left.sums[PARTS - 1 + part][first + row]);
                    for half in 0..2 {
                        let scales = _mm256_load_ps(block.scales[part].as_ptr().add(half * LANES / 2));
                        let minima = _mm256_load_ps(block.minima[part].as_ptr().add(half * LANES / 2));
                        let dot = _mm256_mul_ps(_mm256_cvtepi32_ps(dots[row][half]), unit);
                        sums[row][half] = _mm256_fmadd_ps(dot, scales, sums[row][half]);
                        sums[row][half] = _mm256_fmadd_ps(minima, row_sum, sums[row][half]);
                    }
                }
            }
        }
        for row in 0..R {
            for half in 0..2 {
                _mm256_storeu_ps(c(row, half), sums[row][half]);
            }
        }
    }
    R
}

/// The dot products of one part of a block, `R` rows from `first` on and all columns. `SMALL`: its products fit into 16 bits.
///
/// # Safety
/// The machine has AVX2.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn dots<const R: usize, const PARTS: usize, const SMALL: bool>(
    left: &ByteStrip,
    first: usize,
    block: &ExpandedBlock,
    part: usize,
) -> [Halves<__m256i>; R] {
    let counts: Bytes<__m256i> = [_mm256_set1_epi16(HIGH as i16), _mm256_set1_epi16(1)];
    let zero = _mm256_setzero_si256();
    let mut sums: [Halves<__m256i>; R] = [[zero; 2]; R];
    let mut words: [Bytes<Halves<__m256i>>; R] = [[[zero; 2]; 2]; R];
    for i in 0..DOTS_PER_BLOCK / PARTS {
        let k4 = k4_of(PARTS, part, i);
        for half in 0..2 {
            // SAFETY: the caller's promise; four k of a row, and of half of the columns.
            unsafe {
                let values = _mm256_load_si256(block.values[k4].as_ptr().add(half * DOT_BYTES / 2).cast());
                for row in 0..R {
                    for byte in 0..2 {
                        let x = left.bytes[first + row].as_ptr().add(byte * GROUP + k4 * DOT_K).cast::<i32>();
                        // 2 · 255 · 64 at most; eight times 2 · 31 · 64; four times 2 · 63 · 64.
                        let pairs = _mm256_maddubs_epi16(values, _mm256_set1_epi32(x.read_unaligned()));
                        if SMALL {
                            words[row][byte][half] = _mm256_add_epi16(words[row][byte][half], pairs);
                        } else {
                            sums[row][half] = _mm256_add_epi32(sums[row][half], _mm256_madd_epi16(pairs, counts[byte]));
                        }
                    }
                }
            }
        }
    }
    if SMALL {
        for row in 0..R {
            for half in 0..2 {
                let high = _mm256_madd_epi16(words[row][0][half], counts[0]);
                let low = _mm256_madd_epi16(words[row][1][half], counts[1]);
                sums[row][half] = _mm256_add_epi32(high, low);
            }
        }
    }
    sums
}
