//! Which types stay quantized, and how. A panel of 16 columns is a chain of blocks, one for each 32 k, or of superblocks, one for
//! each 256; float and integer matmuls read the same ones.
//!
//! ```text
//!   block      = values of 16 columns × 32 k | 16 scales | 16 minima, if the type has them
//!   superblock = 8 times those values        | small scales of 16 columns × 16 groups | 16 scales | 16 minima
//! ```

use baton_model::Dtype;

use super::block_format::BlockFormat;
use super::group::Group;
use super::packing::{pack_column, packed_bytes};
use super::superblock::{SUPER_BLOCKS, SUPER_DEPTH, Superblock, SuperblockFormat};
use crate::weights::layout::GROUP;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum QuantFormat {
    Blocks(BlockFormat),
    Superblocks(SuperblockFormat),
}

impl QuantFormat {
    /// `None` for types that are not quantized.
    pub(crate) fn of(dtype: Dtype) -> Option<Self> {
        let blocks = BlockFormat::of(dtype).map(Self::Blocks);
        blocks.or_else(|| SuperblockFormat::of(dtype).map(Self::Superblocks))
    }

    /// k of one block, or of one superblock.
    #[inline(always)]
    pub(crate) fn depth(self) -> usize {
        match self {
            Self::Blocks(_) => GROUP,
            Self::Superblocks(_) => SUPER_DEPTH,
        }
    }

    /// Bytes of one block, or of one superblock, of 16 columns.
    #[inline(always)]
    pub(crate) fn bytes(self) -> usize {
        match self {
            Self::Blocks(format) => format.block_bytes(),
            Self::Superblocks(format) => format.superblock_bytes(),
        }
    }

    /// Bytes per 32 k: those of a block, or an eighth of a superblock's.
    #[inline(always)]
    pub(crate) fn block_bytes(self) -> usize {
        self.bytes() * GROUP / self.depth()
    }

    /// Bits of a value.
    #[inline(always)]
    pub(crate) fn bits(self) -> usize {
        match self {
            Self::Blocks(format) => format.width.bits(),
            Self::Superblocks(format) => format.bits(),
        }
    }

    /// Writes one column of a block or superblock that is zero so far: that of `number` in a row of the file.
    pub(crate) fn pack_column(self, packed: &mut [u8], column: usize, dtype: Dtype, row: &[u8], number: usize) {
        match self {
            Self::Blocks(format) => {
                if let Some(group) = Group::read(dtype, row, number) {
                    pack_column(packed, self.bits(), column, &group.values);
                    format.pack_scales(packed, column, &group);
                }
            }
            Self::Superblocks(format) => {
                if let Some(superblock) = Superblock::read(dtype, row, number) {
                    let (values, scales) = packed.split_at_mut(SUPER_BLOCKS * packed_bytes(self.bits()));
                    let blocks = values.chunks_mut(packed_bytes(self.bits())).zip(superblock.values.chunks(GROUP));
                    blocks.for_each(|(packed, values)| pack_column(packed, self.bits(), column, values));
                    format.pack_scales(scales, column, &superblock);
                }
            }
        }
    }
}
