//! What products of integers need of a panel's cells.

use super::super::cell_format::CellFormat;
#[cfg(target_arch = "x86_64")]
use super::super::format::CodeWidth;
use super::super::superblock::SUPER_BLOCKS;
use super::block::Block;
use crate::simd::vector::Lanes;

impl CellFormat {
    /// Scales that a column has in 32 k.
    pub(super) fn parts(self) -> usize {
        match self {
            Self::Groups(_) => 1,
            Self::Superblocks(_) => 2,
        }
    }

    /// 32 codes below 32, or 16 below 64, have one scale. Then the sums of their products with bytes of rows fit into 16 bits.
    #[cfg(target_arch = "x86_64")]
    pub(super) fn has_small_codes(self) -> bool {
        match self {
            Self::Groups(groups) => groups.width != CodeWidth::Eight,
            Self::Superblocks(_) => true,
        }
    }

    /// A block of a panel that begins at `cells`; prefetches what lies `ahead` bytes further on.
    ///
    /// # Safety
    /// The panel has it.
    #[inline(always)]
    pub(super) unsafe fn expand<L: Lanes>(self, cells: *const u8, block: usize, ahead: usize, to: &mut Block) {
        // SAFETY: the caller's promise.
        unsafe {
            match self {
                Self::Groups(groups) => {
                    let cell = cells.add(block * groups.cell_bytes());
                    for line in (0..groups.cell_bytes()).step_by(64) {
                        L::prefetch(cell.wrapping_add(ahead + line));
                    }
                    groups.expand::<L>(cell, to);
                }
                Self::Superblocks(superblocks) => {
                    let (cell, block) =
                        (cells.add(block / SUPER_BLOCKS * superblocks.cell_bytes()), block % SUPER_BLOCKS);
                    let eighth = superblocks.cell_bytes() / SUPER_BLOCKS;
                    for line in (0..eighth).step_by(64) {
                        L::prefetch(cell.wrapping_add(ahead + block * eighth + line));
                    }
                    superblocks.expand::<L>(cell, block, to);
                }
            }
        }
    }
}
