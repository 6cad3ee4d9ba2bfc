//! Sums of the rows on the left, for minima: products with ones, so that they are taken in the order of all products.

use half::bf16;

use crate::cpu::lanes::{LANES, Lanes};
use crate::cpu::pairs::{PairsProduct, Passing, TILE, TILE_ROWS, tile_stride};

const PAIRS: usize = TILE / TILE_ROWS / 2;

/// Ones in column p for the pairs of part p of a block.
const fn ones(parts: usize) -> [bf16; TILE] {
    let mut tile = [bf16::ZERO; TILE];
    let mut pair = 0;
    while pair < PAIRS {
        let first = (pair * LANES + pair * parts / PAIRS) * 2;
        tile[first] = bf16::ONE;
        tile[first + 1] = bf16::ONE;
        pair += 1;
    }
    tile
}

/// `[row tile][block][part][row]`: of each of the 16 rows of a tile, the sums of equal parts of its 32 values.
///
/// # Safety
/// At `left` are all blocks of these rows in tile order, whole tiles of rows.
#[inline(always)]
pub(super) unsafe fn row_sums<L: Lanes, const PARTS: usize>(
    left: *const bf16,
    rows: usize,
    blocks: usize,
    to: &mut [f32],
) {
    let ones = const { &ones(PARTS) };
    let mut sums = [0.0; TILE_ROWS * LANES];
    let tiles = rows.div_ceil(TILE_ROWS) * blocks;
    for (tile, to) in to.chunks_exact_mut(PARTS * TILE_ROWS).take(tiles).enumerate() {
        let (row_tile, block) = (tile / blocks, tile % blocks);
        L::call(PairsProduct {
            rows: TILE_ROWS,
            panels: 1,
            pairs: PAIRS,
            // SAFETY: the caller's promise.
            a: unsafe { left.add(row_tile * tile_stride(blocks) + block * TILE) },
            a_tile_stride: 0,
            b: ones.as_ptr(),
            b_pair_stride: 2 * LANES,
            b_panel_stride: 0,
            ahead: None,
            passing: Passing::Neither,
            c: sums.as_mut_ptr(),
            c_stride: LANES,
            resume: false,
        });
        for (i, to) in to.iter_mut().enumerate() {
            *to = sums[i % TILE_ROWS * LANES + i / TILE_ROWS];
        }
    }
}
