//! How superblocks lie in a supercell for products of bytes: block by block, in fields of as many bits as a code has. Of place i in
//! quad t = i / 4 (see [`Block`]) and column c, byte 4c + i % 4 of 64 bytes each:
//!
//! ```text
//!   4 bits   low half for even t, high half for odd, in 64 bytes t / 2      the low bits of 6
//!   2 bits   bits 2(t % 4), in 64 bytes t / 4                               the high ones of 6, the low ones of 3, or all
//!   1 bit    bit t                                                          the high one of 3
//! ```
//!
//! Behind all blocks bytes `[group of 16][column]` with small scales, or with a small scale in the low half and a small minimum
//! in the high half; then 16 scales, and 16 minima.

#![allow(clippy::needless_range_loop, reason = "quads and bytes are numbers here; indexed loops become vectors")]

use super::super::format::GROUP;
use super::super::superblock::{SMALL_GROUPS, SUPER_DEPTH, Superblock, Superblocks};
use super::block::{Block, QUAD, QUAD_BYTES, QUADS, place};
use crate::cpu::lanes::{LANES, Lanes};

/// Blocks of a supercell.
pub(super) const SUPER_BLOCKS: usize = SUPER_DEPTH / GROUP;
pub(super) const FOUR_BITS: usize = QUADS / 2 * QUAD_BYTES;
pub(super) const TWO_BITS: usize = QUADS / 4 * QUAD_BYTES;
const ONE_BIT: usize = QUADS / 8 * QUAD_BYTES;
pub(super) const SMALL_BYTES: usize = SMALL_GROUPS * LANES;
pub(super) const HALVES_BYTES: usize = LANES * 2;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct IntegerSuperblocks(pub(super) Superblocks);

impl IntegerSuperblocks {
    /// Codes of one block.
    pub(super) const fn block_bytes(self) -> usize {
        match self.0 {
            Superblocks::Two => TWO_BITS,
            Superblocks::Three => TWO_BITS + ONE_BIT,
            Superblocks::Six => FOUR_BITS + TWO_BITS,
        }
    }

    /// The code that stands for zero.
    pub(super) const fn zero(self) -> u8 {
        match self.0 {
            Superblocks::Two => 0,
            Superblocks::Three => 4,
            Superblocks::Six => 32,
        }
    }

    /// Whole cache lines.
    pub(crate) const fn cell_bytes(self) -> usize {
        (SUPER_BLOCKS * self.block_bytes() + SMALL_BYTES + 2 * HALVES_BYTES).next_multiple_of(64)
    }

    /// Writes one column of a supercell that is zero so far.
    pub(in crate::cpu::quant) fn put(self, cell: &mut [u8], column: usize, superblock: &Superblock) {
        for (k, &code) in superblock.codes.iter().enumerate() {
            let (quad, in_quad) = (place(k % GROUP) / QUAD, column * QUAD + place(k % GROUP) % QUAD);
            let block = &mut cell[k / GROUP * self.block_bytes()..][..self.block_bytes()];
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
        let (small, scales) = cell[SUPER_BLOCKS * self.block_bytes()..].split_at_mut(SMALL_BYTES);
        for group in 0..SMALL_GROUPS {
            let (scale, minimum) = (superblock.small_scales[group] as u8, superblock.small_minima[group] as u8);
            small[group * LANES + column] = if self.0.has_minima() { scale | minimum << 4 } else { scale };
        }
        scales[2 * column..][..2].copy_from_slice(&superblock.scale.to_le_bytes());
        scales[HALVES_BYTES + 2 * column..][..2].copy_from_slice(&superblock.minimum.to_le_bytes());
    }

    /// `to` = a block of the supercell.
    ///
    /// # Safety
    /// A whole supercell is readable.
    #[inline(always)]
    pub(super) unsafe fn expand<L: Lanes>(self, cell: *const u8, number: usize, to: &mut Block) {
        // SAFETY: the caller's promise; codes of all blocks come first.
        let (codes, small) = unsafe {
            let codes = std::slice::from_raw_parts(cell.add(number * self.block_bytes()), self.block_bytes());
            (codes.as_chunks::<QUAD_BYTES>().0, cell.add(SUPER_BLOCKS * self.block_bytes()))
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
        // SAFETY: behind the codes are small scales of two groups of each block, scales and minima.
        unsafe {
            let (scale, minimum) =
                (L::load_f16(small.add(SMALL_BYTES)), L::load_f16(small.add(SMALL_BYTES + HALVES_BYTES)));
            for part in 0..2 {
                let small = &*small.add((2 * number + part) * LANES).cast::<[i8; LANES]>();
                // Products of 11 bits and 8 are exact.
                let (scales, minima) = if self.0.has_minima() {
                    let (mut scales, mut minima) = ([0; LANES], [0; LANES]);
                    for column in 0..LANES {
                        scales[column] = small[column] & 15;
                        minima[column] = small[column] >> 4 & 15;
                    }
                    (scale.mul(L::load_i8(scales.as_ptr())), minimum.mul(L::load_i8(minima.as_ptr())))
                } else {
                    let scales = scale.mul(L::load_i8(small.as_ptr()));
                    (scales, scales.mul(L::splat(-f32::from(self.zero()))))
                };
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
