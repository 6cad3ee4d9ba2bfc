//! How superblocks lie in a supercell for products of bytes: block by block, in fields of as many bits as a code has. Of place i in
//! quad t = i / 4 (see [`Block`]) and column c, byte 4c + i % 4 of 64 bytes each:
//!
//! ```text
//!   4 bits   low half for even t, high half for odd, in 64 bytes t / 2      the low bits of 6
//!   2 bits   bits 2(t % 4), in 64 bytes t / 4                               the high ones of 6, the low ones of 3, or all
//!   1 bit    bit t                                                          the high one of 3
//! ```
//!
//! Behind all blocks are the scales of [superblocks](super::super::superblock).

#![allow(clippy::needless_range_loop, reason = "quads and bytes are numbers here; indexed loops become vectors")]

use super::super::format::GROUP;
use super::super::superblock::{SUPER_BLOCKS, Superblock, Superblocks};
use super::block::{Block, QUAD, QUAD_BYTES, QUADS, place};
use crate::cpu::lanes::Lanes;

pub(super) const FOUR_BITS: usize = QUADS / 2 * QUAD_BYTES;
pub(super) const TWO_BITS: usize = QUADS / 4 * QUAD_BYTES;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct IntegerSuperblocks(pub(super) Superblocks);

impl IntegerSuperblocks {
    pub(super) const fn block_bytes(self) -> usize {
        self.0.block_bytes()
    }

    pub(super) const fn zero(self) -> u8 {
        self.0.zero()
    }

    pub(super) const fn cell_bytes(self) -> usize {
        self.0.cell_bytes()
    }

    /// Writes one column of a supercell that is zero so far.
    pub(super) fn put(self, cell: &mut [u8], column: usize, superblock: &Superblock) {
        for (k, &code) in superblock.codes.iter().enumerate() {
            let (quad, in_quad) = (place(k % GROUP) / QUAD, column * QUAD + place(k % GROUP) % QUAD);
            let block = &mut cell[k / GROUP * self.block_bytes()..][..self.0.block_bytes()];
            let two_bits = match self.0 {
                Superblocks::Six => {
                    block[quad / 2 * QUAD_BYTES + in_quad] |= (code & 15) << (quad % 2 * 4);
                    (FOUR_BITS, code >> 4)
                }
                Superblocks::Three => {
                    block[TWO_BITS + in_quad] |= (code >> 2) << quad;
                    (0, code & 3)
                }
                Superblocks::Two => (0, code),
            };
            block[two_bits.0 + quad / 4 * QUAD_BYTES + in_quad] |= two_bits.1 << (quad % 4 * 2);
        }
        self.0.put_scales(&mut cell[SUPER_BLOCKS * self.block_bytes()..], column, superblock);
    }

    /// `to` = a block of the supercell.
    ///
    /// # Safety
    /// A whole supercell is readable.
    #[inline(always)]
    pub(super) unsafe fn expand<L: Lanes>(self, cell: *const u8, number: usize, to: &mut Block) {
        // SAFETY: the caller's promise; codes of all blocks come first.
        let (codes, behind_codes) = unsafe {
            let codes = std::slice::from_raw_parts(cell.add(number * self.0.block_bytes()), self.0.block_bytes());
            (codes.as_chunks::<QUAD_BYTES>().0, cell.add(SUPER_BLOCKS * self.0.block_bytes()))
        };
        match self.0 {
            Superblocks::Two => {
                for quad in 0..QUADS {
                    for i in 0..QUAD_BYTES {
                        to.codes[quad][i] = two_bits(codes, quad, i);
                    }
                }
            }
            Superblocks::Three => {
                for quad in 0..QUADS {
                    for i in 0..QUAD_BYTES {
                        to.codes[quad][i] =
                            two_bits(codes, quad, i) | (codes[TWO_BITS / QUAD_BYTES][i] >> quad & 1) << 2;
                    }
                }
            }
            Superblocks::Six => {
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
                let (scales, minima) = self.0.scales::<L>(behind_codes, 2 * number + part);
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
