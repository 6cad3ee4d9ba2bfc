//! With AVX2: products of bytes are added up in pairs, in words of 16 bits that hold the largest of them.

#![allow(
    clippy::needless_range_loop,
    reason = "halves and quads are numbers here; adapters of iterators would not be inlined across target features"
)]

use std::arch::x86_64::*;

use super::super::format::GROUP;
use super::cell::{Block, QUAD, QUAD_BYTES, QUADS};
use super::product::IntegerProduct;
use super::rows::{HIGH, ROW_BYTES, STRIP_ROWS};
use crate::cpu::lanes::LANES;

/// Columns 0..8 and 8..16.
type Halves<T> = [T; 2];

/// All rows of a strip, one after the other.
///
/// # Safety
/// Pointers are good for the shapes that the product states, and the machine has AVX2 and FMA.
#[target_feature(enable = "avx2,fma")]
pub(super) unsafe fn strip(product: &IntegerProduct, cells: &[Block]) {
    for row in 0..product.rows {
        // SAFETY: the caller's promise.
        unsafe { one_row(product, row, cells) };
    }
}

/// # Safety
/// As above, and the row is one of the product's.
#[inline]
#[target_feature(enable = "avx2,fma")]
unsafe fn one_row(product: &IntegerProduct, row: usize, cells: &[Block]) {
    // SAFETY: the caller's promise.
    unsafe {
        let c = product.c.add(row * product.c_stride);
        let mut sums: Halves<__m256> = [_mm256_setzero_ps(); 2];
        if product.resume {
            sums = [_mm256_loadu_ps(c), _mm256_loadu_ps(c.add(LANES / 2))];
        }
        for (block, cell) in cells.iter().enumerate() {
            let at = block * STRIP_ROWS + row;
            let dots = dots(product.left.bytes.add(at * ROW_BYTES), cell);
            let unit = _mm256_set1_ps(*product.left.units.add(at));
            let row_sum = _mm256_set1_ps(*product.left.sums.add(at));
            for half in 0..2 {
                let scales = _mm256_load_ps(cell.scales.as_ptr().add(half * LANES / 2));
                let minima = _mm256_load_ps(cell.minima.as_ptr().add(half * LANES / 2));
                let dot = _mm256_mul_ps(_mm256_cvtepi32_ps(dots[half]), unit);
                sums[half] = _mm256_fmadd_ps(dot, scales, sums[half]);
                sums[half] = _mm256_fmadd_ps(minima, row_sum, sums[half]);
            }
        }
        _mm256_storeu_ps(c, sums[0]);
        _mm256_storeu_ps(c.add(LANES / 2), sums[1]);
    }
}

/// Of all columns.
///
/// # Safety
/// A row of a block is readable, and the machine has AVX2.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn dots(row: *const i8, cell: &Block) -> Halves<__m256i> {
    let counts = [_mm256_set1_epi16(HIGH as i16), _mm256_set1_epi16(1)];
    let mut sums: Halves<__m256i> = [_mm256_setzero_si256(); 2];
    for quad in 0..QUADS {
        for part in 0..2 {
            // SAFETY: the caller's promise; a quad of a row, and of half of the columns.
            unsafe {
                let x = _mm256_set1_epi32(row.add(part * GROUP + quad * QUAD).cast::<i32>().read_unaligned());
                for half in 0..2 {
                    let codes = _mm256_load_si256(cell.codes[quad].as_ptr().add(half * QUAD_BYTES / 2).cast());
                    // 2 · 255 · 64 at most.
                    let pairs = _mm256_maddubs_epi16(codes, x);
                    sums[half] = _mm256_add_epi32(sums[half], _mm256_madd_epi16(pairs, counts[part]));
                }
            }
        }
    }
    sums
}
