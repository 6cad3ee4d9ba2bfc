//! Which types are kept for products of whole numbers, and as what cells.

use baton_model::Dtype;

#[cfg(target_arch = "x86_64")]
use super::super::format::CodeWidth;
use super::super::format::{Format, GROUP};
use super::super::group::Group;
use super::super::superblock::{SUPER_BLOCKS, SUPER_DEPTH, Superblock, Superblocks};
use super::block::Block;
use super::cell::IntegerGroups;
use super::supercell::IntegerSuperblocks;
use crate::cpu::lanes::Lanes;

/// How the cells of a panel are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IntegerFormat {
    Groups(IntegerGroups),
    Superblocks(IntegerSuperblocks),
}

impl IntegerFormat {
    /// `None` for types that are not quantized.
    pub(in crate::cpu::quant) fn of(dtype: Dtype) -> Option<Self> {
        let groups = Format::of(dtype).map(IntegerGroups).map(Self::Groups);
        groups.or_else(|| Superblocks::of(dtype).map(IntegerSuperblocks).map(Self::Superblocks))
    }

    /// k of one cell.
    pub(in crate::cpu::quant) fn depth(self) -> usize {
        match self {
            Self::Groups(_) => GROUP,
            Self::Superblocks(_) => SUPER_DEPTH,
        }
    }

    pub(in crate::cpu::quant) fn cell_bytes(self) -> usize {
        match self {
            Self::Groups(groups) => groups.cell_bytes(),
            Self::Superblocks(superblocks) => superblocks.cell_bytes(),
        }
    }

    /// Writes one column of a cell that is zero so far: the `number`-th of a row of a file.
    pub(in crate::cpu::quant) fn put(self, cell: &mut [u8], column: usize, dtype: Dtype, row: &[u8], number: usize) {
        match self {
            Self::Groups(groups) => {
                if let Some(group) = Group::read(dtype, row, number) {
                    groups.put(cell, column, &group);
                }
            }
            Self::Superblocks(superblocks) => {
                if let Some(superblock) = Superblock::read(dtype, row, number) {
                    superblocks.put(cell, column, &superblock);
                }
            }
        }
    }

    /// Scales that a column has in 32 k.
    pub(super) fn parts(self) -> usize {
        match self {
            Self::Groups(_) => 1,
            Self::Superblocks(_) => 2,
        }
    }

    /// 32 codes below 32, or 16 below 64, have one scale. Then the sums of their products with bytes of rows fit into 16 bits, and
    /// with whole numbers of rows (±2¹³) into the 24 that an f32 holds exactly.
    #[cfg(target_arch = "x86_64")]
    pub(super) fn has_small_codes(self) -> bool {
        match self {
            Self::Groups(groups) => groups.width() != CodeWidth::Eight,
            Self::Superblocks(_) => true,
        }
    }

    /// What 32 k take, about.
    #[cfg(target_arch = "x86_64")]
    pub(super) fn block_bytes(self) -> usize {
        self.cell_bytes() * GROUP / self.depth()
    }

    /// A block of a panel that begins at `cells`; what lies so many bytes ahead of it is asked for.
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
