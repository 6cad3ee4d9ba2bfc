//! Products of whole numbers, for quantized weights: another order of sums than that of tiles, with numerics of its own. For
//! machines without tiles; for tokens that were generated, of which there are few at a time; and for logits everywhere, whose
//! errors nothing evens out: no code is rounded here.
//!
//! The 32 values of a row that meet a block share a power of two, and become whole numbers of 14 bits. Per output and block, or
//! per half of one where weights have a scale per 16:
//!
//! ```text
//!   q   = the whole number nearest to x · 2¹²⁻ᵉ, where 2ᵉ ≤ largest |x| < 2ᵉ⁺¹     where x is a bf16: exact down to 2ᵉ⁻⁵
//!   dot = sum of q · code                                                         exact, in any order; then the nearest f32
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
//! For products of bytes `q` lies in memory as two of them, 128 · high + low, both in -64..=64: two products fit into 16 bits even
//! with codes of eight. Many rows before VNNI are [multiplied in f32](exact_floats) instead.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod block;
mod cell;
#[cfg(target_arch = "x86_64")]
mod exact_floats;
mod format;
mod product;
mod rows;
mod supercell;
#[cfg(test)]
mod tests;

use std::ops::Range;

use half::bf16;

use self::block::Block;
#[cfg(target_arch = "x86_64")]
use self::exact_floats::FloatStrip;
#[cfg(target_arch = "x86_64")]
pub(super) use self::exact_floats::WideBlock;
use self::product::IntegerProduct;
use self::rows::{ByteStrip, Strip};
pub(super) use self::rows::{STRIP_ROWS, WholeRows};
use super::buffers::{PANELS, QuantBuffers};
use super::cells::Cells;
use crate::matmul::gemm::GemmItem;
use crate::matmul::rows::Rows;
use crate::simd::vector::{LANES, Lanes};

/// So far ahead cells are asked for.
const PREFETCH_BYTES: usize = 4 << 10;
/// Blocks that are expanded at a time, at most: 18 KiB, which strips of rows pass by.
const SLICE_BLOCKS: usize = 24;

/// Cells as products read them.
pub(super) type Expanded = Box<[Block]>;

/// Room for the cells that are expanded at a time.
pub(super) fn expanded() -> Expanded {
    std::iter::repeat_n(Block::ZERO, SLICE_BLOCKS).collect()
}

/// Whether bytes are multiplied by instructions of their own (AVX-512 VNNI).
#[cfg(target_arch = "x86_64")]
fn has_byte_products() -> bool {
    #[cfg(test)]
    if WITHOUT_VNNI.load(std::sync::atomic::Ordering::Relaxed) {
        return false;
    }
    is_x86_feature_detected!("avx512vnni")
}

/// Tests go the other way, too. Whoever does not care gets the same bits.
#[cfg(all(test, target_arch = "x86_64"))]
pub(crate) static WITHOUT_VNNI: std::sync::atomic::AtomicBool = std::sync::atomic::AtomicBool::new(false);

/// All sums of an item, handed to its `finish`.
#[inline(always)]
pub(crate) fn integers<L: Lanes>(item: &GemmItem<'_, bf16>, cells: &Cells, buffers: &mut QuantBuffers) {
    #[cfg(target_arch = "x86_64")]
    if L::TABLE_BYTES == 64
        && !has_byte_products()
        && item.rows.len() >= exact_floats::LEAST_ROWS
        && let Some(parts) = exact_floats::parts(cells, item.panels.clone())
    {
        round::<L, FloatStrip>(item, cells.blocks(), &mut buffers.whole);
        return exact_floats::multiply::<L>(item, cells, parts, buffers);
    }
    round::<L, ByteStrip>(item, cells.blocks(), &mut buffers.whole);
    for first in item.panels.clone().step_by(PANELS) {
        let panels = first..item.panels.end.min(first + PANELS);
        multiply::<L>(cells, panels.clone(), item.rows.len(), buffers);
        item.finish::<L>(item.rows.clone(), panels, buffers.sums.as_slice(), PANELS * LANES);
    }
}

#[inline(always)]
fn round<L: Lanes, S: Strip>(item: &GemmItem<'_, bf16>, blocks: usize, to: &mut WholeRows) {
    match &item.gemm.x {
        Rows::Normed(normed) => to.round_normed::<L, S>(&item.rows, normed, blocks),
        // SAFETY: written in an earlier phase; items begin at whole tiles.
        Rows::Waiting(waiting) => unsafe { to.round::<L, S>(&item.rows, waiting.at_row(item.rows.start), blocks) },
    }
}

/// Sums of some panels, [`PANELS`] at most, of rows that are rounded.
#[inline(always)]
fn multiply<L: Lanes>(cells: &Cells, panels: Range<usize>, rows: usize, buffers: &mut QuantBuffers) {
    let blocks = cells.blocks();
    for (place, panel) in panels.enumerate() {
        let (format, cells) = cells.panel(panel);
        let sums = &mut buffers.sums.as_mut_slice()[place * LANES..];
        assert!(place < PANELS && sums.len() >= (rows - 1) * PANELS * LANES + LANES);
        let c = sums.as_mut_ptr();
        let whole = &buffers.whole;
        // All blocks of all strips were rounded just now; sums have all rows; VNNI is used where it is found.
        let product = |first: usize, count: usize| IntegerProduct {
            rows,
            blocks: count,
            left: whole.strips::<ByteStrip>()[first..].as_ptr(),
            left_stride: blocks,
            parts: format.parts(),
            #[cfg(target_arch = "x86_64")]
            small_codes: format.has_small_codes(),
            #[cfg(target_arch = "x86_64")]
            vnni: has_byte_products(),
            c,
            c_stride: PANELS * LANES,
            resume: first > 0,
        };
        #[cfg(target_arch = "x86_64")]
        if L::TABLE_BYTES == 64 && rows <= avx512::MOST_FROM_CELLS {
            // SAFETY: below lanes of AVX-512; a whole panel.
            unsafe { avx512::from_cells(&product(0, blocks), format, cells) };
            continue;
        }
        let slice_blocks = blocks.div_ceil(blocks.div_ceil(SLICE_BLOCKS));
        for first in (0..blocks).step_by(slice_blocks) {
            let count = slice_blocks.min(blocks - first);
            for block in 0..count {
                // SAFETY: an existing block.
                unsafe { format.expand::<L>(cells, first + block, PREFETCH_BYTES, &mut buffers.expanded_cells[block]) };
            }
            product(first, count).run::<L>(&buffers.expanded_cells[..count]);
        }
    }
}
