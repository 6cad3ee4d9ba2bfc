//! A cell's codes as a tile of bf16.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;

use half::bf16;

use super::cell::Tile;
use super::format::{CodeWidth, Format};
use crate::cpu::lanes::{LANES, Lanes};

/// `tile` = the codes of the cell at `cell`.
///
/// # Safety
/// A whole cell is readable.
#[inline(always)]
pub(super) unsafe fn expand<L: Lanes>(format: Format, table: &[bf16; 32], cell: *const u8, tile: &mut Tile) {
    // SAFETY: the caller's promise; kernels over these lanes run where their instructions are.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        match L::TABLE_BYTES {
            64 => return avx512::expand(format, table, cell, tile),
            32 => return avx2::expand(format, cell, tile),
            _ => {}
        }
    }
    // SAFETY: the caller's promise.
    let cell = unsafe { std::slice::from_raw_parts(cell, format.code_bytes()) };
    match format.width {
        CodeWidth::Four => each_word(tile, |pair, word| table[low_bits(cell, pair, word)]),
        CodeWidth::Five => each_word(tile, |pair, word| {
            let fifth = cell[256 + word * 2 + pair / 8] >> (pair % 8) & 1;
            table[low_bits(cell, pair, word) | usize::from(fifth) << 4]
        }),
        CodeWidth::Eight => each_word(tile, |pair, word| {
            let code = cell[pair * 32 + word % 2 * LANES + word / 2] as i8;
            bf16::from_bits((f32::from(code).to_bits() >> 16) as u16)
        }),
    }
}

#[inline(always)]
fn each_word(tile: &mut Tile, value: impl Fn(usize, usize) -> bf16) {
    for (pair, words) in tile.chunks_mut(2 * LANES).enumerate() {
        for (word, to) in words.iter_mut().enumerate() {
            *to = value(pair, word);
        }
    }
}

#[inline(always)]
fn low_bits(cell: &[u8], pair: usize, word: usize) -> usize {
    usize::from(cell[pair / 4 * 64 + word * 2 + pair % 4 / 2] >> (pair % 2 * 4) & 15)
}
