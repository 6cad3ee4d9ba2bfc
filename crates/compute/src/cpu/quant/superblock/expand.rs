//! A supercell's weights as eight tiles of bf16.

use half::bf16;

use super::cell::Supercell;
use super::{SMALL_GROUP, SUPER_DEPTH};
use crate::cpu::isa::Kernel;
use crate::cpu::lanes::{LANES, Lanes};
use crate::cpu::pairs::{BLOCK_DEPTH, TILE};

/// Tiles of one supercell.
pub(super) const SUPER_TILES: usize = SUPER_DEPTH / BLOCK_DEPTH;
/// So far ahead supercells are asked for.
const PREFETCH_BYTES: usize = 4 << 10;

/// `tiles` holds [`SUPER_TILES`].
pub(super) struct Expand<const BITS: usize> {
    pub(super) cell: *const u8,
    pub(super) tiles: *mut bf16,
}

/// Pointers are good for one supercell and its tiles: whoever makes it says why.
impl<const BITS: usize> Kernel for Expand<BITS> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self) {
        // SAFETY: a whole one.
        let cell = unsafe { Supercell::<BITS>::at(self.cell) };
        for tile in 0..SUPER_TILES {
            cell.prefetch::<L>(PREFETCH_BYTES, tile);
            for half in 0..2 {
                let group = cell.group::<L>(2 * tile + half);
                let pairs = SMALL_GROUP / 2;
                for pair in 0..pairs {
                    // SAFETY: a pair of k for 16 columns of the tile.
                    unsafe {
                        let to = self.tiles.add(tile * TILE + (half * pairs + pair) * 2 * LANES);
                        L::store_bf16_pairs(group.weights(2 * pair), group.weights(2 * pair + 1), to.cast());
                    }
                }
            }
        }
    }
}
