//! Products of whole numbers, for weights with a scale per 32: another order of sums than that of tiles, with numerics of its
//! own, for machines that have none.
//!
//! The 32 values of a row that meet a cell share a power of two, and become whole numbers of 14 bits. Per output and cell:
//!
//! ```text
//!   q   = the whole number nearest to x · 2¹²⁻ᵉ, where 2ᵉ ≤ largest |x| < 2ᵉ⁺¹     of bf16(x): exact down to 2ᵉ⁻⁵
//!   dot = sum of q · code                                                         exact, in any order
//!   acc = (dot · 2ᵉ⁻¹²) · scale + acc
//!   acc = minimum · (sum of q · 2ᵉ⁻¹²) + acc                                       where a type has none: -zero · scale
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
mod cell;
mod product;
mod rows;
#[cfg(test)]
mod tests;

use std::ops::Range;

use half::bf16;

use self::cell::Block;
pub(super) use self::cell::IntegerFormat;
use self::product::IntegerProduct;
pub(super) use self::rows::WholeRows;
use super::buffers::QuantBuffers;
use super::cells::Cells;
use super::multiply::{PANELS, SLICE_BLOCKS};
use crate::cpu::lanes::{LANES, Lanes};

/// So far ahead cells are asked for.
const PREFETCH_BYTES: usize = 4 << 10;

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
            left: whole.from(first, blocks),
            small_codes: format.has_small_codes(),
            c,
            c_stride: PANELS * LANES,
            resume: first > 0,
        };
        #[cfg(target_arch = "x86_64")]
        if L::TABLE_BYTES == 64 && rows.len() <= avx512::MOST_FROM_CELLS && has_byte_products() {
            // SAFETY: the machine has what is asked for; a whole panel.
            unsafe { avx512::from_cells(&product(0, blocks), format, cells.cell(panel, 0)) };
            continue;
        }
        let slice_blocks = blocks.div_ceil(blocks.div_ceil(SLICE_BLOCKS));
        for first in (0..blocks).step_by(slice_blocks) {
            let count = slice_blocks.min(blocks - first);
            for block in 0..count {
                let cell = cells.cell(panel, first + block);
                for line in (0..format.cell_bytes()).step_by(64) {
                    L::prefetch(cell.wrapping_add(PREFETCH_BYTES + line));
                }
                // SAFETY: an existing cell.
                unsafe { format.expand::<L>(cell, &mut buffers.expanded_cells[block]) };
            }
            product(first, count).run::<L>(&buffers.expanded_cells[..count]);
        }
    }
}
