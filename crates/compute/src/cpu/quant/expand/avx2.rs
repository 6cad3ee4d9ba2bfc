use std::arch::x86_64::*;

use super::{CodeWidth, Format, Tile};

/// # Safety
/// A whole cell is readable, and the machine has AVX2.
#[inline]
#[target_feature(enable = "avx2")]
pub(super) unsafe fn expand(format: Format, cell: *const u8, tile: &mut Tile) {
    let (low, fifth_bit) = (_mm256_set1_epi16(15), _mm256_set1_epi16(16));
    let zero = _mm256_set1_epi16(i16::from(format.zero));
    let tile = tile.as_mut_ptr();
    // Halves of rows of 64 bytes.
    for half in 0..2 {
        // SAFETY: the caller's promise; a tile has sixteen such rows.
        unsafe {
            let put = |row: usize, words: __m256i| _mm256_storeu_si256(tile.add(row * 32 + half * 16).cast(), words);
            match format.width {
                CodeWidth::Four => {
                    for quad in 0..4 {
                        let mut codes = _mm256_loadu_si256(cell.add(quad * 64 + half * 32).cast());
                        for row in quad * 4..quad * 4 + 4 {
                            put(row, bf16_of(_mm256_sub_epi16(_mm256_and_si256(codes, low), zero)));
                            codes = _mm256_srli_epi16::<4>(codes);
                        }
                    }
                }
                CodeWidth::Five => {
                    let mut fifth = _mm256_loadu_si256(cell.add(256 + half * 32).cast());
                    for quad in 0..4 {
                        let mut codes = _mm256_loadu_si256(cell.add(quad * 64 + half * 32).cast());
                        for row in quad * 4..quad * 4 + 4 {
                            let above = _mm256_and_si256(_mm256_slli_epi16::<4>(fifth), fifth_bit);
                            let five = _mm256_or_si256(_mm256_and_si256(codes, low), above);
                            put(row, bf16_of(_mm256_sub_epi16(five, zero)));
                            codes = _mm256_srli_epi16::<4>(codes);
                            fifth = _mm256_srli_epi16::<1>(fifth);
                        }
                    }
                }
                CodeWidth::Eight => {
                    for row in 0..16 {
                        let bytes = cell.add(row * 32 + half * 8);
                        put(row, pairs(eight(bytes), eight(bytes.add(16))));
                    }
                }
            }
        }
    }
}

/// Sixteen small integers as bf16.
#[inline]
#[target_feature(enable = "avx2")]
fn bf16_of(words: __m256i) -> __m256i {
    pairs(_mm256_srai_epi32::<16>(_mm256_slli_epi32::<16>(words)), _mm256_srai_epi32::<16>(words))
}

/// Small integers: the low half of an f32 is zero.
#[inline]
#[target_feature(enable = "avx2")]
fn pairs(even: __m256i, odd: __m256i) -> __m256i {
    let bits = |integers: __m256i| _mm256_castps_si256(_mm256_cvtepi32_ps(integers));
    _mm256_or_si256(_mm256_srli_epi32::<16>(bits(even)), bits(odd))
}

/// Signed bytes.
///
/// # Safety
/// 8 bytes are readable.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn eight(bytes: *const u8) -> __m256i {
    // SAFETY: the caller's promise.
    _mm256_cvtepi8_epi32(unsafe { _mm_loadl_epi64(bytes.cast()) })
}
