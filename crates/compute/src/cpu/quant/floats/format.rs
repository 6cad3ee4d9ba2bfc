//! Which types are kept for products of bf16, and as what cells.

use baton_model::Dtype;

use super::super::format::{CodeWidth, Format, GROUP};
use super::super::group::Group;
use super::super::superblock::{SUPER_BLOCKS, SUPER_DEPTH, Superblock, Superblocks};
use super::codes::{PLACES, bias, code_bytes, places, put};
use crate::cpu::lanes::Lanes;

/// How the cells of a panel are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FloatFormat {
    Groups(Format),
    Superblocks(Superblocks),
}

/// What 16 k of 16 columns have in common: their weights are `code · scale + offset`, where codes have the bias of their place.
#[derive(Clone, Copy)]
pub(super) struct Scaled<L> {
    pub(super) scale: L,
    pub(super) offsets: [L; PLACES],
}

/// What cutting off takes away on average, of weights around zero: 0.72 of the half of a last place that it would be if all
/// began with the digit 1.
pub(crate) const GIVEN_BACK: f32 = 1.0 + 0.72 / 256.0;

impl<L: Lanes> Scaled<L> {
    #[inline(always)]
    fn new<const BITS: usize>((scale, minimum): (L, L)) -> Self {
        let given_back = L::splat(GIVEN_BACK);
        let (scale, minimum) = (scale.mul(given_back), minimum.mul(given_back));
        let mut offsets = [minimum; PLACES];
        for (place, offset) in offsets.iter_mut().enumerate().take(places(BITS)) {
            *offset = scale.fma(L::splat(-bias(BITS, place)), minimum);
        }
        Self { scale, offsets }
    }
}

impl FloatFormat {
    /// `None` for types that are not quantized.
    pub(in crate::cpu::quant) fn of(dtype: Dtype) -> Option<Self> {
        let groups = Format::of(dtype).map(Self::Groups);
        groups.or_else(|| Superblocks::of(dtype).map(Self::Superblocks))
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
            Self::Groups(format) => format.cell_bytes(),
            Self::Superblocks(superblocks) => superblocks.cell_bytes(),
        }
    }

    /// Of a code.
    pub(super) fn bits(self) -> usize {
        match self {
            Self::Groups(format) => match format.width {
                CodeWidth::Four => 4,
                CodeWidth::Five => 5,
                CodeWidth::Eight => 8,
            },
            Self::Superblocks(superblocks) => superblocks.bits(),
        }
    }

    /// Writes one column of a cell that is zero so far: the `number`-th of a row of a file.
    pub(in crate::cpu::quant) fn put(self, cell: &mut [u8], column: usize, dtype: Dtype, row: &[u8], number: usize) {
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

    /// The codes of a block of a panel that begins at `cells`, and what its halves have in common. They have `BITS`, which is
    /// known here so that constants are.
    ///
    /// # Safety
    /// The panel has the block.
    #[inline(always)]
    pub(super) unsafe fn block<L: Lanes, const BITS: usize>(
        self,
        cells: *const u8,
        block: usize,
    ) -> (*const u8, [Scaled<L>; 2]) {
        // SAFETY: the caller's promise; scales lie behind the codes of a cell.
        unsafe {
            match self {
                Self::Groups(format) => {
                    let cell = cells.add(block * format.cell_bytes());
                    let scaled = Scaled::new::<BITS>(format.scales::<L>(cell.add(format.code_bytes()), format.zero));
                    (cell, [scaled; 2])
                }
                Self::Superblocks(superblocks) => {
                    let cell = cells.add(block / SUPER_BLOCKS * superblocks.cell_bytes());
                    let scales = cell.add(SUPER_BLOCKS * code_bytes(BITS));
                    let block = block % SUPER_BLOCKS;
                    let first = Scaled::new::<BITS>(superblocks.scales::<L>(scales, 2 * block));
                    let second = Scaled::new::<BITS>(superblocks.scales::<L>(scales, 2 * block + 1));
                    (cell.add(block * code_bytes(BITS)), [first, second])
                }
            }
        }
    }

    /// What a block takes of a cell, or all of it.
    #[inline(always)]
    pub(in crate::cpu::quant) fn block_bytes(self) -> usize {
        self.cell_bytes() * GROUP / self.depth()
    }

    /// Asks for as much as a block takes. Blocks of the next panel follow those of this one.
    #[inline(always)]
    pub(super) fn prefetch<L: Lanes>(self, cells: *const u8, block: usize) {
        for line in (0..self.block_bytes()).step_by(64) {
            L::prefetch(cells.wrapping_add(block * self.block_bytes() + line));
        }
    }
}
