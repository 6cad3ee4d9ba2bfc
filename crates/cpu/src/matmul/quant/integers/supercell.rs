//! Supercells as products of bytes read them.

#![allow(clippy::needless_range_loop, reason = "quads and bytes are numbers here; indexed loops become vectors")]

use super::super::codes::{QUAD_BYTES, QUADS};
use super::super::superblock::{SUPER_BLOCKS, Superblocks};
use super::block::Block;
use crate::simd::vector::Lanes;

/// Of a block: where its fields of fewer bits begin.
pub(super) const FOUR_BITS: usize = QUADS / 2 * QUAD_BYTES;
pub(super) const TWO_BITS: usize = QUADS / 4 * QUAD_BYTES;

impl Superblocks {
    /// `to` = a block of the supercell.
    ///
    /// # Safety
    /// A whole supercell is readable.
    #[inline(always)]
    pub(super) unsafe fn expand<L: Lanes>(self, cell: *const u8, number: usize, to: &mut Block) {
        // SAFETY: the caller's promise; codes of all blocks come first.
        let (codes, behind_codes) = unsafe {
            let codes = std::slice::from_raw_parts(cell.add(number * self.block_bytes()), self.block_bytes());
            (codes.as_chunks::<QUAD_BYTES>().0, cell.add(SUPER_BLOCKS * self.block_bytes()))
        };
        match self {
            Self::Two => {
                for quad in 0..QUADS {
                    for i in 0..QUAD_BYTES {
                        to.codes[quad][i] = two_bits(codes, quad, i);
                    }
                }
            }
            Self::Three => {
                for quad in 0..QUADS {
                    for i in 0..QUAD_BYTES {
                        to.codes[quad][i] =
                            two_bits(codes, quad, i) | (codes[TWO_BITS / QUAD_BYTES][i] >> quad & 1) << 2;
                    }
                }
            }
            Self::Six => {
                let high = &codes[FOUR_BITS / QUAD_BYTES..];
                for quad in (0..QUADS).step_by(2) {
                    for i in 0..QUAD_BYTES {
                        let low = codes[quad / 2][i];
                        to.codes[quad][i] = low & 15 | two_bits(high, quad, i) << 4;
                        to.codes[quad + 1][i] = low >> 4 | two_bits(high, quad + 1, i) << 4;
                    }
                }
            }
        }
        for part in 0..2 {
            // SAFETY: scales lie behind the codes.
            unsafe {
                let (scales, minima) = self.scales::<L>(behind_codes, 2 * number + part);
                scales.store(to.scales[part].as_mut_ptr());
                minima.store(to.minima[part].as_mut_ptr());
            }
        }
    }
}

#[inline(always)]
fn two_bits(codes: &[[u8; QUAD_BYTES]], quad: usize, i: usize) -> u8 {
    codes[quad / 4][i] >> (quad % 4 * 2) & 3
}
