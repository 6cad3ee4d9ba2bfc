//! Which types are kept as codes, and how. A panel of 16 columns is a chain of cells, one for each 32 k, or of supercells, one for
//! each 256; all products read the same ones.
//!
//! ```text
//!   cell      = codes of 16 columns × 32 k  | 16 scales | 16 minima, if the type has them
//!   supercell = 8 times that                | small scales of 16 columns × 16 groups | 16 scales | 16 minima
//! ```

use baton_model::Dtype;

use super::codes::{code_bytes, put};
use super::format::Format;
use super::group::Group;
use super::superblock::{SUPER_BLOCKS, SUPER_DEPTH, Superblock, Superblocks};
use crate::weights::layout::GROUP;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CellFormat {
    Groups(Format),
    Superblocks(Superblocks),
}

impl CellFormat {
    /// `None` for types that are not quantized.
    pub(super) fn of(dtype: Dtype) -> Option<Self> {
        let groups = Format::of(dtype).map(Self::Groups);
        groups.or_else(|| Superblocks::of(dtype).map(Self::Superblocks))
    }

    /// k of one cell.
    #[inline(always)]
    pub(super) fn depth(self) -> usize {
        match self {
            Self::Groups(_) => GROUP,
            Self::Superblocks(_) => SUPER_DEPTH,
        }
    }

    #[inline(always)]
    pub(super) fn cell_bytes(self) -> usize {
        match self {
            Self::Groups(format) => format.cell_bytes(),
            Self::Superblocks(superblocks) => superblocks.cell_bytes(),
        }
    }

    /// What 32 k take of a cell, or all of it.
    #[inline(always)]
    pub(super) fn block_bytes(self) -> usize {
        self.cell_bytes() * GROUP / self.depth()
    }

    /// Of a code.
    #[inline(always)]
    pub(super) fn bits(self) -> usize {
        match self {
            Self::Groups(format) => format.width.bits(),
            Self::Superblocks(superblocks) => superblocks.bits(),
        }
    }

    /// Writes one column of a cell that is zero so far: the `number`-th of a row of a file.
    pub(super) fn put(self, cell: &mut [u8], column: usize, dtype: Dtype, row: &[u8], number: usize) {
        match self {
            Self::Groups(format) => {
                if let Some(group) = Group::read(dtype, row, number) {
                    put(cell, self.bits(), column, &group.codes);
                    format.put_scales(cell, column, &group);
                }
            }
            Self::Superblocks(superblocks) => {
                if let Some(superblock) = Superblock::read(dtype, row, number) {
                    let (codes, scales) = cell.split_at_mut(SUPER_BLOCKS * code_bytes(self.bits()));
                    let blocks = codes.chunks_mut(code_bytes(self.bits())).zip(superblock.codes.chunks(GROUP));
                    blocks.for_each(|(codes, of_block)| put(codes, self.bits(), column, of_block));
                    superblocks.put_scales(scales, column, &superblock);
                }
            }
        }
    }
}
