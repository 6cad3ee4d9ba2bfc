//! Blocks of any format, expanded for integer matmuls.

use super::expanded_block::ExpandedBlock;
use crate::simd::vector::Lanes;
#[cfg(target_arch = "x86_64")]
use crate::weights::quant::block_format::BitWidth;
use crate::weights::quant::format::QuantFormat;
use crate::weights::quant::superblock::SUPER_BLOCKS;

impl QuantFormat {
    /// Scales that a column has in 32 k.
    pub(super) fn parts(self) -> usize {
        match self {
            Self::Blocks(_) => 1,
            Self::Superblocks(_) => 2,
        }
    }

    /// Whether values that share a scale are small: 32 below 32, or 16 below 64. Then sums of their products with bytes of rows fit
    /// into 16 bits.
    #[cfg(target_arch = "x86_64")]
    pub(super) fn has_small_values(self) -> bool {
        match self {
            Self::Blocks(format) => format.width != BitWidth::Eight,
            Self::Superblocks(_) => true,
        }
    }

    /// Expands block `number` of the panel at `data`, and prefetches `ahead` bytes beyond it.
    ///
    /// # Safety
    /// The panel has that block.
    #[inline(always)]
    pub(super) unsafe fn expand<L: Lanes>(self, data: *const u8, number: usize, ahead: usize, to: &mut ExpandedBlock) {
        // SAFETY: the caller's promise.
        unsafe {
            match self {
                Self::Blocks(format) => {
                    let block = data.add(number * format.block_bytes());
                    for line in (0..format.block_bytes()).step_by(64) {
                        L::prefetch(block.wrapping_add(ahead + line));
                    }
                    format.expand::<L>(block, to);
                }
                Self::Superblocks(format) => {
                    let (superblock, block) =
                        (data.add(number / SUPER_BLOCKS * format.superblock_bytes()), number % SUPER_BLOCKS);
                    let eighth = format.superblock_bytes() / SUPER_BLOCKS;
                    for line in (0..eighth).step_by(64) {
                        L::prefetch(superblock.wrapping_add(ahead + block * eighth + line));
                    }
                    format.expand::<L>(superblock, block, to);
                }
            }
        }
    }
}
