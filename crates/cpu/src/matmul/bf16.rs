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

mod ahead;
mod asking;
mod blocks;
mod expanding;
mod few_rows;
mod many_rows;
mod meanwhile;
mod passes;
mod product;
mod sums;
mod tile_rows;
mod turns;
mod vectors;
mod widened_rows;

use half::bf16;

#[cfg(target_arch = "x86_64")]
pub(crate) use self::asking::{Asking, Pages};
use self::blocks::in_blocks;
use self::few_rows::{few_compact_rows, few_rows};
use self::many_rows::many_rows;
use self::passes::PassBlocks;
pub(crate) use self::product::{FEW_ROWS, PagedProduct, PairsProduct, Passing, distance};
pub(crate) use self::tile_rows::{BLOCK_DEPTH, TILE, TILE_ROWS, TileRows, blocks_apart, tile_index};
#[cfg(test)]
pub(crate) use self::widened_rows::widen;
use crate::matmul::arithmetic::Arithmetic;
use crate::matmul::gemm::GemmItem;
use crate::matmul::quant::{self, CodeProducts};
use crate::matmul::rows::Rows;
use crate::simd::vector::{LANES, Lanes, to_bf16};
use crate::weights::bf12;

/// Rows and panels of one product: two tiles each.
const PRODUCT_ROWS: usize = 2 * TILE_ROWS;
const PRODUCT_PANELS: usize = 2;
const PRODUCT_SUMS: usize = PRODUCT_ROWS * PRODUCT_PANELS * LANES;

/// Deeper products are cut along k, so that an item's rows stay in the second-level cache while panels pass by.
pub(crate) const WHOLE_BLOCKS: usize = 64;
/// Of few rows: their slices are as deep as products that are not cut.
const LONG_PASSES: PassBlocks = PassBlocks { slice: WHOLE_BLOCKS, pass: WHOLE_BLOCKS };
/// So many blocks of two panels stay in a first-level cache of 48 KiB while rows pass by: 40 KiB.
const NEAR_BLOCKS: usize = 20;
/// Products up to so deep take one pass; what is behind the near blocks passes by as rows do. Resuming sums would take longer.
const ONE_PASS_BLOCKS: usize = 28;
/// Products of rows that share them, at least, for passes to be so short: their sums have to be resumed. Prompts have as many;
/// fewer were not measured.
const NEAR_PRODUCTS: usize = 4;
/// Rows × k of an item, at most, or of a long slice of it: half of a second-level cache of 2 MiB.
const ITEM_ELEMENTS: usize = 512 << 10;
/// Beyond that they save no more reads of W.
const MAX_ITEM_ROWS: usize = 512;
/// Expanded blocks that few rows are multiplied with at a time. Odd, so that blocks of both panels do not share
/// the same sets of a first-level cache.
const STREAM_BLOCKS: usize = 5;
/// Panels whose sums wait for the next slice of k. The more there are, the less often slices of rows are read again from beyond
/// the second-level cache, which has up to 1 MiB of sums then and half as much of 256 rows.
const SLICED_PANELS: usize = 64;

impl Arithmetic for bf16 {
    const PLAN: &'static str = "bf16-pairs-v3";
    type Left = Self;
    type Packed = TileRows;
    const TILE_ROWS: usize = PRODUCT_ROWS;

    fn waiting_elements(rows: usize, width: usize) -> usize {
        rows.next_multiple_of(TILE_ROWS) * blocks_apart(width.div_ceil(BLOCK_DEPTH)) * BLOCK_DEPTH
    }

    fn waiting_apart(width: usize) -> usize {
        blocks_apart(width.div_ceil(BLOCK_DEPTH))
    }

    #[inline(always)]
    fn waiting_index(row: usize, column: usize, apart: usize) -> usize {
        tile_index(row, column, apart)
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
        let depth = depth.clamp(1, LONG_PASSES.slice * BLOCK_DEPTH);
        (ITEM_ELEMENTS / depth / PRODUCT_ROWS * PRODUCT_ROWS).clamp(PRODUCT_ROWS, MAX_ITEM_ROWS)
    }

    fn reads_rows_again(depth: usize) -> bool {
        depth > WHOLE_BLOCKS * BLOCK_DEPTH
    }

    #[inline(always)]
    fn multiply<L: Lanes>(item: &GemmItem<'_, Self>, packed: &mut TileRows) {
        let (matrix, rows) = (&item.weights.matrix, item.rows.len());
        if let Some(cells) = matrix.cells()
            && item.gemm.products == CodeProducts::Integers
        {
            return quant::integers::<L>(item, cells, &mut packed.quant);
        }
        let left = match &item.gemm.x {
            Rows::Normed(rows) => packed.pack::<L>(rows, item.rows.clone()),
            // SAFETY: written in an earlier phase; items begin at whole tiles.
            Rows::Waiting(rows) => unsafe { rows.at_row(item.rows.start) },
        };
        match matrix.cells() {
            Some(cells) if rows <= quant::MOST_FROM_CODES => {
                // SAFETY: `left` has all blocks.
                let x = unsafe { packed.widened.of::<L>(&item.rows, matrix.blocks(), left) };
                quant::few_rows::<L>(item, cells, x, &mut packed.quant);
            }
            _ if let Some(compact) = matrix.compact()
                && bf12::is_read_in_registers::<L>(rows) =>
            {
                // SAFETY: `left` has all blocks.
                let x = unsafe { packed.widened.of::<L>(&item.rows, matrix.blocks(), left) };
                few_compact_rows::<L>(item, compact, x, packed);
            }
            _ if !L::TILES && rows > FEW_ROWS => in_blocks::<L>(item, left, packed),
            _ if !matrix.is_plain() && rows <= PRODUCT_ROWS => few_rows::<L>(item, left, packed),
            _ => many_rows::<L>(item, left, packed),
        }
    }
}
