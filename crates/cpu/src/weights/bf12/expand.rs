//! A tile's twelve bits as bf16 again: high bytes are looked up, and interleaved with the low ones. Vector units interleave eight
//! bytes of each 16 with eight others, so four rows of a tile (32 words each) lie like this:
//!
//! ```text
//!   64 low bytes       | row 0, words 0..8 | row 1, words 0..8 | row 0, words 8..16 | …
//!   64 more            | row 2             | row 3             | …
//!   64 indices          the same order: rows 0 and 1 in the low halves, 2 and 3 in the high ones
//! ```

use super::{HighBytes, LOW_BYTES, TILE_BYTES};
use crate::simd::vector::Lanes;
use crate::weights::layout::TILE;

/// Where a weight lies in its tile.
pub(super) struct Place {
    pub(super) low: usize,
    /// Behind the low bytes.
    pub(super) index: usize,
    pub(super) shift: u32,
}

/// Weights that lie side by side in a tile, too.
pub(super) const RUN: usize = 8;

/// Of a tile's weight `i`.
pub(super) const fn place(i: usize) -> Place {
    let (row, word) = (i / 32, i % 32);
    let at = word / RUN * 16 + row % 2 * RUN + word % RUN;
    Place { low: row / 2 * 64 + at, index: row / 4 * 64 + at, shift: (row % 4 / 2 * 4) as u32 }
}

/// # Safety
/// A tile is readable at `tile`, and one of bf16 writable at `to`.
#[inline(always)]
pub(super) unsafe fn expand<L: Lanes>(tile: *const u8, high_bytes: &HighBytes, to: *mut u16) {
    let table = &high_bytes.by_index;
    // SAFETY: the caller's promise; kernels over these lanes run where their instructions are.
    unsafe {
        #[cfg(target_arch = "x86_64")]
        match L::TABLE_BYTES {
            64 => return x86::expand_64(tile, table, to),
            32 => return x86::expand_32(tile, table, to),
            _ => {}
        }
        plainly(&*tile.cast(), table, &mut *to.cast());
    }
}

fn plainly(tile: &[u8; TILE_BYTES], table: &[u8; 16], to: &mut [u16; TILE]) {
    for (i, to) in to.iter_mut().enumerate() {
        let place = place(i);
        let index = usize::from(tile[LOW_BYTES + place.index] >> place.shift & 15);
        *to = u16::from_le_bytes([tile[place.low], table[index]]);
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::*;

    use super::LOW_BYTES;
    use crate::weights::layout::TILE_ROWS;

    /// Rows of a tile whose indices share a line.
    const GROUP_ROWS: usize = 4;
    /// Of a row: 16 columns at a pair of k.
    const ROW_WORDS: usize = 32;

    /// # Safety
    /// As for [`expand`](super::expand), and the machine has AVX-512 with byte instructions.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw")]
    pub(super) unsafe fn expand_64(tile: *const u8, table: &[u8; 16], to: *mut u16) {
        // SAFETY: the caller's promise.
        unsafe {
            let table = _mm512_broadcast_i32x4(_mm_loadu_si128(table.as_ptr().cast()));
            for group in 0..TILE_ROWS / GROUP_ROWS {
                for (row, words) in rows_64(tile, table, group).into_iter().enumerate() {
                    _mm512_storeu_si512(to.add((group * GROUP_ROWS + row) * ROW_WORDS).cast(), words);
                }
            }
        }
    }

    /// Four rows of a tile.
    ///
    /// # Safety
    /// The tile is readable, and the machine has AVX-512 with byte instructions.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw")]
    unsafe fn rows_64(tile: *const u8, table: __m512i, group: usize) -> [__m512i; GROUP_ROWS] {
        // SAFETY: the caller's promise.
        unsafe {
            let half = _mm512_set1_epi8(15);
            let indices = _mm512_loadu_si512(tile.add(LOW_BYTES + group * 64).cast());
            let both = [_mm512_and_si512(indices, half), _mm512_and_si512(_mm512_srli_epi16::<4>(indices), half)];
            let (mut rows, mut row) = ([_mm512_setzero_si512(); GROUP_ROWS], 0);
            for indices in both {
                let low = _mm512_loadu_si512(tile.add((group * GROUP_ROWS + row) * ROW_WORDS).cast());
                let high = _mm512_shuffle_epi8(table, indices);
                rows[row] = _mm512_unpacklo_epi8(low, high);
                rows[row + 1] = _mm512_unpackhi_epi8(low, high);
                row += 2;
            }
            rows
        }
    }

    /// # Safety
    /// As for [`expand`](super::expand), and the machine has AVX2.
    #[inline]
    #[target_feature(enable = "avx2")]
    pub(super) unsafe fn expand_32(tile: *const u8, table: &[u8; 16], to: *mut u16) {
        // SAFETY: the caller's promise.
        unsafe {
            let table = _mm256_broadcastsi128_si256(_mm_loadu_si128(table.as_ptr().cast()));
            let half = _mm256_set1_epi8(15);
            // Half of the words of four rows.
            for piece in 0..8 {
                let (group, side) = (piece / 2, piece % 2);
                let indices = _mm256_loadu_si256(tile.add(LOW_BYTES + group * 64 + side * 32).cast());
                let both = [_mm256_and_si256(indices, half), _mm256_and_si256(_mm256_srli_epi16::<4>(indices), half)];
                for (pair, indices) in both.into_iter().enumerate() {
                    let pair = group * 2 + pair;
                    let low = _mm256_loadu_si256(tile.add(pair * 64 + side * 32).cast());
                    let high = _mm256_shuffle_epi8(table, indices);
                    let to = to.add(pair * 64 + side * 16);
                    _mm256_storeu_si256(to.cast(), _mm256_unpacklo_epi8(low, high));
                    _mm256_storeu_si256(to.add(32).cast(), _mm256_unpackhi_epi8(low, high));
                }
            }
        }
    }
}
