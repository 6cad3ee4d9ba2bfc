//! One or two rows times one panel, straight from the codes: nothing is expanded to memory.

#![allow(
    clippy::needless_range_loop,
    reason = "rows and pairs are numbers here; adapters of iterators would not be inlined across target features"
)]

use std::arch::x86_64::*;

use half::bf16;

use super::format::{CodeWidth, GROUP, Precision};
use super::product::{CellProduct, PAIRS};
use crate::cpu::lanes::LANES;
use crate::cpu::pairs::TILE_ROWS;

/// So far ahead cells are asked for.
const PREFETCH_BYTES: usize = 4 << 10;

/// Both chains of each row.
type Chains<const R: usize> = [[__m512; 2]; R];

/// The first `R` rows of the product. `x` has them as `[block][row][even k, then odd k]`: multiply-adds take their broadcasts
/// from memory, because the unit that would make them in registers is busy with look-ups.
///
/// # Safety
/// Pointers are good for the shapes that the product states, and the machine has AVX-512 with byte and word instructions.
#[target_feature(enable = "avx512f,avx512bw")]
pub(super) unsafe fn few_rows<const R: usize>(product: &CellProduct, x: *const f32, table: &[bf16; 32]) {
    let format = product.format;
    // SAFETY: the caller's promise.
    unsafe {
        let table = _mm512_loadu_si512(table.as_ptr().cast());
        let mut sums = [_mm512_setzero_ps(); R];
        for block in 0..product.blocks {
            let cell = product.cells.add(block * format.cell_bytes());
            for line in (0..format.cell_bytes()).step_by(64) {
                _mm_prefetch::<_MM_HINT_T0>(cell.wrapping_add(PREFETCH_BYTES + line).cast());
            }
            let x = x.add(block * R * GROUP);
            let mut chains: Chains<R> = [[_mm512_setzero_ps(); 2]; R];
            match format.width {
                CodeWidth::Four => {
                    for quad in 0..PAIRS / 4 {
                        let mut codes = _mm512_loadu_si512(cell.add(quad * 64).cast());
                        for pair in quad * 4..quad * 4 + 4 {
                            multiply_words(&mut chains, x, pair, _mm512_permutexvar_epi16(codes, table));
                            codes = _mm512_srli_epi16::<4>(codes);
                        }
                    }
                }
                CodeWidth::Five => {
                    let low = _mm512_set1_epi16(15);
                    let mut fifth = _mm512_loadu_si512(cell.add(PAIRS / 4 * 64).cast());
                    for quad in 0..PAIRS / 4 {
                        let mut codes = _mm512_loadu_si512(cell.add(quad * 64).cast());
                        for pair in quad * 4..quad * 4 + 4 {
                            // low ? codes : fifth, bit by bit
                            let five = _mm512_ternarylogic_epi32::<0xca>(low, codes, _mm512_slli_epi16::<4>(fifth));
                            multiply_words(&mut chains, x, pair, _mm512_permutexvar_epi16(five, table));
                            codes = _mm512_srli_epi16::<4>(codes);
                            fifth = _mm512_srli_epi16::<1>(fifth);
                        }
                    }
                }
                CodeWidth::Eight => {
                    for pair in 0..PAIRS {
                        let bytes = cell.add(pair * 2 * LANES);
                        multiply(&mut chains, x, pair, whole(bytes), whole(bytes.add(LANES)));
                    }
                }
            }
            let scales = cell.add(format.code_bytes());
            let scale = sixteen(format.scales, scales);
            for row in 0..R {
                // From zero, as tiles begin.
                let dot = _mm512_add_ps(_mm512_setzero_ps(), _mm512_add_ps(chains[row][0], chains[row][1]));
                sums[row] = _mm512_fmadd_ps(dot, scale, sums[row]);
            }
            if format.minima {
                let minimum = sixteen(format.scales, scales.add(format.scale_bytes()));
                for row in 0..R {
                    let row_sum = _mm512_set1_ps(*product.sums.add(block * TILE_ROWS + row));
                    sums[row] = _mm512_fmadd_ps(minimum, row_sum, sums[row]);
                }
            }
        }
        for row in 0..R {
            _mm512_storeu_ps(product.c.add(row * product.c_stride), sums[row]);
        }
    }
}

/// # Safety
/// `x` has a block of `R` rows.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
unsafe fn multiply_words<const R: usize>(chains: &mut Chains<R>, x: *const f32, pair: usize, words: __m512i) {
    let even = _mm512_castsi512_ps(_mm512_slli_epi32::<16>(words));
    let odd = _mm512_castsi512_ps(_mm512_and_si512(words, _mm512_set1_epi32(0xffff_0000_u32 as i32)));
    // SAFETY: the caller's promise.
    unsafe { multiply(chains, x, pair, even, odd) };
}

/// # Safety
/// `x` has a block of `R` rows.
#[inline]
#[target_feature(enable = "avx512f")]
unsafe fn multiply<const R: usize>(chains: &mut Chains<R>, x: *const f32, pair: usize, even: __m512, odd: __m512) {
    for row in 0..R {
        // SAFETY: the caller's promise.
        let (x_even, x_odd) = unsafe { (*x.add(row * GROUP + pair), *x.add(row * GROUP + PAIRS + pair)) };
        chains[row][0] = _mm512_fmadd_ps(even, _mm512_set1_ps(x_even), chains[row][0]);
        chains[row][1] = _mm512_fmadd_ps(odd, _mm512_set1_ps(x_odd), chains[row][1]);
    }
}

/// # Safety
/// So many scales are readable.
#[inline]
#[target_feature(enable = "avx512f")]
pub(super) unsafe fn sixteen(precision: Precision, scales: *const u8) -> __m512 {
    // SAFETY: the caller's promise.
    unsafe {
        match precision {
            Precision::Half => _mm512_cvtph_ps(_mm256_loadu_si256(scales.cast())),
            Precision::Single => _mm512_loadu_ps(scales.cast()),
        }
    }
}

/// Sixteen signed bytes.
///
/// # Safety
/// They are readable.
#[inline]
#[target_feature(enable = "avx512f")]
unsafe fn whole(bytes: *const u8) -> __m512 {
    // SAFETY: the caller's promise.
    _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(unsafe { _mm_loadu_si128(bytes.cast()) }))
}
