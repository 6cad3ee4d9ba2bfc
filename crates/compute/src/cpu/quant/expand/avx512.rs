use std::arch::x86_64::*;

use half::bf16;

use super::{CodeWidth, Format, Tile};

/// # Safety
/// A whole cell is readable, and the machine has AVX-512 with byte and word instructions.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
pub(super) unsafe fn expand(format: Format, table: &[bf16; 32], cell: *const u8, tile: &mut Tile) {
    let tile = tile.as_mut_ptr();
    // SAFETY: the caller's promise; a tile has sixteen rows of 64 bytes.
    unsafe {
        let table = _mm512_loadu_si512(table.as_ptr().cast());
        match format.width {
            CodeWidth::Four => {
                for quad in 0..4 {
                    let codes = _mm512_loadu_si512(cell.add(quad * 64).cast());
                    let rows = [
                        codes,
                        _mm512_srli_epi16::<4>(codes),
                        _mm512_srli_epi16::<8>(codes),
                        _mm512_srli_epi16::<12>(codes),
                    ];
                    for (row, codes) in rows.into_iter().enumerate() {
                        // The look-up uses five bits of each word.
                        put(tile, quad * 4 + row, _mm512_permutexvar_epi16(codes, table));
                    }
                }
            }
            CodeWidth::Five => {
                let low = _mm512_set1_epi16(15);
                let mut fifth = _mm512_loadu_si512(cell.add(256).cast());
                for quad in 0..4 {
                    let mut codes = _mm512_loadu_si512(cell.add(quad * 64).cast());
                    for row in 0..4 {
                        // low ? codes : fifth, bit by bit
                        let five = _mm512_ternarylogic_epi32::<0xca>(low, codes, _mm512_slli_epi16::<4>(fifth));
                        put(tile, quad * 4 + row, _mm512_permutexvar_epi16(five, table));
                        codes = _mm512_srli_epi16::<4>(codes);
                        fifth = _mm512_srli_epi16::<1>(fifth);
                    }
                }
            }
            CodeWidth::Eight => {
                for row in 0..16 {
                    let even = whole(cell.add(row * 32));
                    let odd = whole(cell.add(row * 32 + 16));
                    // Small integers: the low half of an f32 is zero.
                    put(tile, row, _mm512_or_si512(_mm512_srli_epi32::<16>(even), odd));
                }
            }
        }
    }
}

/// # Safety
/// `tile` has the row.
#[inline]
#[target_feature(enable = "avx512f")]
unsafe fn put(tile: *mut bf16, row: usize, words: __m512i) {
    // SAFETY: the caller's promise.
    unsafe { _mm512_storeu_si512(tile.add(row * 32).cast(), words) }
}

/// Sixteen signed bytes as the bits of f32.
///
/// # Safety
/// 16 bytes are readable.
#[inline]
#[target_feature(enable = "avx512f")]
unsafe fn whole(bytes: *const u8) -> __m512i {
    // SAFETY: the caller's promise.
    let bytes = unsafe { _mm_loadu_si128(bytes.cast()) };
    _mm512_castps_si512(_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(bytes)))
}
