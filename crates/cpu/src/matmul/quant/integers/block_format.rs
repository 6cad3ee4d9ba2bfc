//! Blocks, expanded for integer matmuls.

#![allow(clippy::needless_range_loop, reason = "groups and bytes are numbers here; indexed loops become vectors")]

use super::expanded_block::ExpandedBlock;
use crate::simd::vector::Lanes;
use crate::weights::quant::block_format::{BitWidth, BlockFormat};
use crate::weights::quant::packing::{DOT_BYTES, DOTS_PER_BLOCK};

impl BlockFormat {
    /// # Safety
    /// A whole block is readable.
    #[inline(always)]
    pub(super) unsafe fn expand<L: Lanes>(self, block: *const u8, to: &mut ExpandedBlock) {
        // SAFETY: the values of a block come first.
        let values = unsafe { std::slice::from_raw_parts(block, self.packed_bytes()) };
        let (values, _) = values.as_chunks::<DOT_BYTES>();
        match self.width {
            BitWidth::Four | BitWidth::Five => {
                for k4 in (0..DOTS_PER_BLOCK).step_by(2) {
                    for i in 0..DOT_BYTES {
                        to.values[k4][i] = values[k4 / 2][i] & 15;
                        to.values[k4 + 1][i] = values[k4 / 2][i] >> 4;
                    }
                }
                if self.width == BitWidth::Five {
                    for k4 in 0..DOTS_PER_BLOCK {
                        for i in 0..DOT_BYTES {
                            to.values[k4][i] |= (values[DOTS_PER_BLOCK / 2][i] >> k4 & 1) << 4;
                        }
                    }
                }
            }
            BitWidth::Eight => {
                to.values.copy_from_slice(values);
            }
        }
        // SAFETY: they lie behind the values; sixteen of each.
        unsafe {
            let (scales, minima) = self.scales::<L>(block.add(self.packed_bytes()));
            scales.store(to.scales[0].as_mut_ptr());
            minima.store(to.minima[0].as_mut_ptr());
        }
    }
}
