//! Products of whole numbers, for quantized weights: another order of sums than that of tiles, with numerics of its own, for
//! machines that have none.
//!
//! The 32 values of a row that meet a block share a power of two, and become whole numbers of 14 bits. Per output and block, or
//! per half of one where weights have a scale per 16:
//!
//! ```text
//!   q   = the whole number nearest to x · 2¹²⁻ᵉ, where 2ᵉ ≤ largest |x| < 2ᵉ⁺¹     of bf16(x): exact down to 2ᵉ⁻⁵
//!   dot = sum of q · code                                                         exact, in any order
//!   acc = (dot · 2ᵉ⁻¹²) · scale + acc
//!   acc = minimum · (sum of q · 2ᵉ⁻¹²) + acc                                      where a type has none: -zero · scale
//! ```
//!
//! ```text
//!   block   |     32 k      | one cell of a type with a scale per 32
//!           | 16 k  | 16 k  | an eighth of a supercell, whose scales are products: small scale · scale
//! ```
//!
//! Eight bits would do with half the products, but cost the most likely token at one position in thirty (docs/exactness.md).
//!
//! `q` lies in memory as two bytes, 128 · high + low, both in -64..=64: two products of bytes fit into 16 bits even with codes
//! of eight.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod block;
mod cell;
mod product;
mod rows;
mod supercell;
#[cfg(test)]
mod tests;

use std::ops::Range;

use baton_model::Dtype;
use half::bf16;

use self::block::Block;
use self::cell::IntegerGroups;
use self::product::IntegerProduct;
pub(super) use self::rows::WholeRows;
use self::supercell::{IntegerSuperblocks, SUPER_BLOCKS};
use super::buffers::QuantBuffers;
use super::cells::Cells;
use super::format::{CodeWidth, Format, GROUP};
use super::multiply::{PANELS, SLICE_BLOCKS};
use super::superblock::{SUPER_DEPTH, Superblocks};
use crate::cpu::lanes::{LANES, Lanes};

/// So far ahead cells are asked for.
const PREFETCH_BYTES: usize = 4 << 10;

/// How the cells of a panel are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IntegerFormat {
    Groups(IntegerGroups),
    Superblocks(IntegerSuperblocks),
}

impl IntegerFormat {
    /// `None` for types that are not quantized.
    pub(super) fn of(dtype: Dtype) -> Option<Self> {
        let groups = Format::of(dtype).map(IntegerGroups).map(Self::Groups);
        groups.or_else(|| Superblocks::of(dtype).map(IntegerSuperblocks).map(Self::Superblocks))
    }

    /// k of one cell.
    pub(super) fn depth(self) -> usize {
        match self {
            Self::Groups(_) => GROUP,
            Self::Superblocks(_) => SUPER_DEPTH,
        }
    }

    pub(super) fn cell_bytes(self) -> usize {
        match self {
            Self::Groups(groups) => groups.cell_bytes(),
            Self::Superblocks(superblocks) => superblocks.cell_bytes(),
        }
    }

    /// Scales that a column has in 32 k.
    fn parts(self) -> usize {
        match self {
            Self::Groups(_) => 1,
            Self::Superblocks(_) => 2,
        }
    }

    /// Whether products of a part's codes, with bytes of rows, fit into 16 bits: 32 codes below 32, or 16 below 64.
    fn has_small_codes(self) -> bool {
        match self {
            Self::Groups(groups) => groups.width() != CodeWidth::Eight,
            Self::Superblocks(_) => true,
        }
    }

    /// A block of a panel that begins at `cells`.
    ///
    /// # Safety
    /// The panel has it.
    #[inline(always)]
    unsafe fn expand<L: Lanes>(self, cells: *const u8, block: usize, to: &mut Block) {
        // SAFETY: the caller's promise.
        unsafe {
            match self {
                Self::Groups(groups) => {
                    let cell = cells.add(block * groups.cell_bytes());
                    for line in (0..groups.cell_bytes()).step_by(64) {
                        L::prefetch(cell.wrapping_add(PREFETCH_BYTES + line));
                    }
                    groups.expand::<L>(cell, to);
                }
                Self::Superblocks(superblocks) => {
                    let (cell, block) =
                        (cells.add(block / SUPER_BLOCKS * superblocks.cell_bytes()), block % SUPER_BLOCKS);
                    let eighth = superblocks.cell_bytes() / SUPER_BLOCKS;
                    for line in (0..eighth).step_by(64) {
                        L::prefetch(cell.wrapping_add(PREFETCH_BYTES + block * eighth + line));
                    }
                    superblocks.expand::<L>(cell, block, to);
                }
            }
        }
    }
}

/// Cells as products read them.
pub(super) type Expanded = Box<[Block]>;

/// Room for the cells that are expanded at a time.
pub(super) fn expanded() -> Expanded {
    std::iter::repeat_n(Block::ZERO, SLICE_BLOCKS).collect()
}

/// Whether bytes are multiplied by instructions of their own (AVX-512 VNNI).
pub(crate) fn has_byte_products() -> bool {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx512vnni") {
        return true;
    }
    false
}

/// Writes the sums of those of the panels, [`PANELS`] at most, that are kept for these products. All rows are in `rows` on the
/// left.
#[inline(always)]
pub(super) fn multiply<L: Lanes>(
    cells: &Cells,
    panels: Range<usize>,
    left: *const bf16,
    rows: &Range<usize>,
    buffers: &mut QuantBuffers,
) {
    let blocks = cells.blocks();
    for (place, panel) in panels.enumerate() {
        let Some(format) = cells.integers(panel) else { continue };
        // SAFETY: `left` has all blocks of whole tiles of rows.
        unsafe { buffers.whole.round::<L>(rows, left, blocks) };
        let sums = &mut buffers.sums.as_mut_slice()[place * LANES..];
        assert!(place < PANELS && sums.len() >= (rows.len() - 1) * PANELS * LANES + LANES);
        let c = sums.as_mut_ptr();
        let whole = &buffers.whole;
        let product = |first: usize, count: usize| IntegerProduct {
            rows: rows.len(),
            blocks: count,
            left: whole.from(first),
            left_stride: blocks,
            parts: format.parts(),
            small_codes: format.has_small_codes(),
            c,
            c_stride: PANELS * LANES,
            resume: first > 0,
        };
        #[cfg(target_arch = "x86_64")]
        if let IntegerFormat::Groups(groups) = format
            && L::TABLE_BYTES == 64
            && rows.len() <= avx512::MOST_FROM_CELLS
            && has_byte_products()
        {
            // SAFETY: the machine has what is asked for; a whole panel.
            unsafe { avx512::from_cells(&product(0, blocks), groups, cells.cell(panel, 0)) };
            continue;
        }
        let slice_blocks = blocks.div_ceil(blocks.div_ceil(SLICE_BLOCKS));
        for first in (0..blocks).step_by(slice_blocks) {
            let count = slice_blocks.min(blocks - first);
            for block in 0..count {
                // SAFETY: an existing block.
                unsafe { format.expand::<L>(cells.cell(panel, 0), first + block, &mut buffers.expanded_cells[block]) };
            }
            product(first, count).run::<L>(&buffers.expanded_cells[..count]);
        }
    }
}
