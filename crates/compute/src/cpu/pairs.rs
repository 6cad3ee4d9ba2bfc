//! Products of bf16, in the order in which AMX takes its sums: whoever has no tiles does the same with fused multiply-adds.
//!
//! ```text
//!   k        0  1  2  3 … 31 | 32 33 …          in blocks of 32, the last one filled up with zeros
//!   e        +     +                            one chain over the even k of a block, from 0
//!   o           +     +                         one over the odd k
//!   sum      sum + (e + o)                      block after block
//! ```
//!
//! Left-hand rows are rounded to bf16; sums are f32. Denormals are zero throughout.

mod product;
mod tile_rows;

use std::ops::Range;

use half::bf16;

pub(crate) use self::product::{AHEAD, PagedProduct, PairsProduct};
pub(crate) use self::tile_rows::{BLOCK_DEPTH, TILE, TILE_ROWS, TileRows, tile_index};
use super::arithmetic::Arithmetic;
use super::gemm::GemmItem;
use super::lanes::{LANES, Lanes, to_bf16};
use super::quant;
use super::rows::Rows;
use super::weights::Matrix;

/// Rows and panels of one product: two tiles each.
const PRODUCT_ROWS: usize = 2 * TILE_ROWS;
const PRODUCT_PANELS: usize = 2;
const PRODUCT_SUMS: usize = PRODUCT_ROWS * PRODUCT_PANELS * LANES;

/// Deeper products are cut along k, so that an item's rows stay in the second-level cache while panels pass by.
pub(crate) const SLICE_BLOCKS: usize = 64;
/// Rows × k of an item in one slice, at most: half of a second-level cache of 2 MiB.
const ITEM_ELEMENTS: usize = 512 << 10;
/// Beyond that they save no more reads of W.
const MAX_ITEM_ROWS: usize = 512;
/// Products that ask for one panel between them.
const AHEAD_PARTS: usize = TILE / AHEAD;
/// In which a product is computed while another is finished: 4 rows each.
#[cfg(target_arch = "x86_64")]
const PARTS: usize = 8;
/// Panels whose sums wait for the next slice of k.
const SLICED_PANELS: usize = 32;

impl Arithmetic for bf16 {
    const PLAN: &'static str = "bf16-pairs-v2";
    type Left = Self;
    type Packed = TileRows;
    const TILE_ROWS: usize = PRODUCT_ROWS;

    fn waiting_elements(rows: usize, width: usize) -> usize {
        rows.next_multiple_of(TILE_ROWS) * width.next_multiple_of(BLOCK_DEPTH)
    }

    #[inline(always)]
    fn waiting_index(row: usize, column: usize, width: usize) -> usize {
        tile_index(row, column, width.div_ceil(BLOCK_DEPTH))
    }

    #[inline(always)]
    unsafe fn put<L: Lanes>(values: L, to: *mut Self) {
        // SAFETY: the caller's promise.
        unsafe { values.store_bf16(to.cast()) };
    }

    #[inline(always)]
    fn left_from_f32(value: f32) -> Self {
        Self::from_bits(to_bf16(value))
    }

    fn item_rows(depth: usize) -> usize {
        let slice = depth.clamp(1, SLICE_BLOCKS * BLOCK_DEPTH);
        (ITEM_ELEMENTS / slice / PRODUCT_ROWS * PRODUCT_ROWS).clamp(PRODUCT_ROWS, MAX_ITEM_ROWS)
    }

    #[inline(always)]
    fn multiply<L: Lanes>(item: &GemmItem<'_, Self>, packed: &mut TileRows) {
        let blocks = item.weights.matrix.depth().div_ceil(BLOCK_DEPTH);
        let left = match &item.gemm.x {
            Rows::Normed(rows) => packed.pack::<L>(rows, item.rows.clone()),
            // SAFETY: written in an earlier phase; items begin at whole tiles.
            Rows::Waiting(rows) => unsafe { rows.at_row(item.rows.start) },
        };
        if let Some(cells) = item.weights.matrix.cells() {
            return quant::multiply::<L>(item, cells, left, &mut packed.quant);
        }
        let deep = blocks > SLICE_BLOCKS;
        let panel_step = if deep { SLICED_PANELS } else { PRODUCT_PANELS };
        let mut before = None;
        for first in item.panels.clone().step_by(panel_step) {
            let panels = first..item.panels.end.min(first + panel_step);
            for slice in (0..blocks).step_by(SLICE_BLOCKS) {
                let slice = slice..blocks.min(slice + SLICE_BLOCKS);
                for panel in panels.clone().step_by(PRODUCT_PANELS) {
                    let panels = panel..panels.end.min(panel + PRODUCT_PANELS);
                    for row in (0..item.rows.len()).step_by(PRODUCT_ROWS) {
                        let product = row / PRODUCT_ROWS;
                        let waiting = if deep {
                            product * SLICED_PANELS / PRODUCT_PANELS + (panel - first) / PRODUCT_PANELS
                        } else {
                            // Tiles are stored when what lies here has been finished.
                            0
                        };
                        let rows = item.rows.start + row..item.rows.end.min(item.rows.start + row + PRODUCT_ROWS);
                        // SAFETY: `left` has all blocks of whole tiles of rows.
                        let a = unsafe { left.add(tile_index(row, 0, blocks)) };
                        let sums = Sums { rows, panels: panels.clone(), c: packed.sums(waiting) };
                        before = multiply::<L>(item, a, sums, slice.clone(), product, before);
                    }
                }
            }
        }
        if let Some(before) = before {
            before.finish::<L>(item, 0..before.rows.len());
        }
    }
}

/// Of one product.
struct Sums {
    rows: Range<usize>,
    panels: Range<usize>,
    c: *mut f32,
}

impl Sums {
    /// Of some of its rows.
    #[inline(always)]
    fn finish<L: Lanes>(&self, item: &GemmItem<'_, bf16>, some: Range<usize>) {
        const STRIDE: usize = PRODUCT_PANELS * LANES;
        let rows = self.rows.start + some.start..self.rows.start + some.end;
        // SAFETY: a member's own sums of a whole product, which nobody writes before they are finished.
        let sums = unsafe { std::slice::from_raw_parts(self.c.add(some.start * STRIDE), some.len() * STRIDE) };
        item.finish::<L>(rows, self.panels.clone(), sums, STRIDE);
    }
}

/// One product over some blocks of k. Its sums are finished behind the last ones: at once, or, where that is much work, by
/// the next product, while that one waits for memory.
#[inline(always)]
fn multiply<L: Lanes>(
    item: &GemmItem<'_, bf16>,
    left: *const bf16,
    sums: Sums,
    blocks: Range<usize>,
    product: usize,
    before: Option<Sums>,
) -> Option<Sums> {
    let matrix = &item.weights.matrix;
    let all_blocks = matrix.depth().div_ceil(BLOCK_DEPTH);
    let is_last = blocks.end == all_blocks;
    let (rows, panels) = (&sums.rows, &sums.panels);
    if is_last {
        item.prefetch::<L>(rows.clone(), panels.clone());
    }
    // While the first rows pass by, the panels that come next are asked for, in equal parts.
    let (next, part) = (panels.end + product / AHEAD_PARTS, product % AHEAD_PARTS);
    let ahead = (next < panels.end + PRODUCT_PANELS && next < matrix.panels())
        .then(|| matrix.panel(next).wrapping_add(blocks.start * TILE + part * blocks.len() * AHEAD));
    // SAFETY: inside the rows, and inside the panel.
    let (a, b) = unsafe { (left.add(blocks.start * TILE), matrix.panel(panels.start).add(blocks.start * TILE)) };
    let of_blocks = PairsProduct {
        rows: rows.len(),
        panels: panels.len(),
        pairs: blocks.len() * BLOCK_DEPTH / 2,
        a,
        a_tile_stride: all_blocks * TILE,
        b,
        b_pair_stride: Matrix::<bf16>::PAIR_STRIDE,
        b_panel_stride: matrix.panel_stride(),
        ahead,
        c: sums.c,
        c_stride: PRODUCT_PANELS * LANES,
        resume: blocks.start > 0,
    };
    #[cfg(target_arch = "x86_64")]
    if L::TILES && item.is_gated() && rows.len() > TILE_ROWS && panels.len() == PRODUCT_PANELS {
        of_blocks.in_parts(PARTS, |part| {
            if let Some(before) = &before {
                let all = before.rows.len();
                before.finish::<L>(item, all * part / PARTS..all * (part + 1) / PARTS);
            }
        });
        return is_last.then_some(sums);
    }
    if let Some(before) = before {
        before.finish::<L>(item, 0..before.rows.len());
    }
    L::call(of_blocks);
    if is_last {
        sums.finish::<L>(item, 0..sums.rows.len());
    }
    None
}
