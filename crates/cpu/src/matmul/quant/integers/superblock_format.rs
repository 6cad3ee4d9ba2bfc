//! Superblocks, expanded for integer matmuls.

#![allow(clippy::needless_range_loop, reason = "groups and bytes are numbers here; indexed loops become vectors")]

use super::expanded_block::ExpandedBlock;
use crate::simd::vector::Lanes;
use crate::weights::quant::packing::{DOT_BYTES, DOTS_PER_BLOCK};
use crate::weights::quant::superblock::{SUPER_BLOCKS, SuperblockFormat};

/// Where a block's high bits begin, behind low ones of four bits and of two.
pub(super) const FOUR_BITS: usize = DOTS_PER_BLOCK / 2 * DOT_BYTES;
pub(super) const TWO_BITS: usize = DOTS_PER_BLOCK / 4 * DOT_BYTES;

impl SuperblockFormat {
    /// `to` = block `number` of the superblock.
    ///
    /// # Safety
    /// A whole superblock is readable.
    #[inline(always)]
    pub(super) unsafe fn expand<L: Lanes>(self, superblock: *const u8, number: usize, to: &mut ExpandedBlock) {
        // SAFETY: the caller's promise; values of all blocks come first.
        let (values, behind_values) = unsafe {
            let values = std::slice::from_raw_parts(superblock.add(number * self.packed_bytes()), self.packed_bytes());
            (values.as_chunks::<DOT_BYTES>().0, superblock.add(SUPER_BLOCKS * self.packed_bytes()))
        };
        match self {
            Self::Two => {
                for k4 in 0..DOTS_PER_BLOCK {
                    for i in 0..DOT_BYTES {
                        to.values[k4][i] = two_bits(values, k4, i);
                    }
                }
            }
            Self::Three => {
                for k4 in 0..DOTS_PER_BLOCK {
                    for i in 0..DOT_BYTES {
                        to.values[k4][i] = two_bits(values, k4, i) | (values[TWO_BITS / DOT_BYTES][i] >> k4 & 1) << 2;
                    }
                }
            }
            Self::Six => {
                let high = &values[FOUR_BITS / DOT_BYTES..];
                for k4 in (0..DOTS_PER_BLOCK).step_by(2) {
                    for i in 0..DOT_BYTES {
                        let low = values[k4 / 2][i];
                        to.values[k4][i] = low & 15 | two_bits(high, k4, i) << 4;
                        to.values[k4 + 1][i] = low >> 4 | two_bits(high, k4 + 1, i) << 4;
                    }
                }
            }
        }
        for part in 0..2 {
            // SAFETY: scales lie behind the values.
            unsafe {
                let (scales, minima) = self.scales::<L>(behind_values, 2 * number + part);
                scales.store(to.scales[part].as_mut_ptr());
                minima.store(to.minima[part].as_mut_ptr());
            }
        }
    }
}

#[inline(always)]
fn two_bits(values: &[[u8; DOT_BYTES]], k4: usize, i: usize) -> u8 {
    values[k4 / 4][i] >> (k4 % 4 * 2) & 3
}
