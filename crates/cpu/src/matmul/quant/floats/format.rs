//! What products of bf16 read in a cell beside its codes.

use super::super::cell_format::CellFormat;
use super::super::codes::code_bytes;
use super::super::superblock::SUPER_BLOCKS;
use super::codes::{PLACES, bias, places};
use crate::simd::vector::Lanes;

/// What 16 k of 16 columns have in common: their weights are `code · scale + offset`, where codes have the bias of their place.
#[derive(Clone, Copy)]
pub(crate) struct Scaled<L> {
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

impl CellFormat {
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
                    let scaled = Scaled::new::<BITS>(format.scales::<L>(cell.add(format.code_bytes())));
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
}
