//! Few rows of weights that have to be expanded: these are multiplied as soon as they are.

use half::bf16;

use super::product::{PairsProduct, WEIGHTS_AHEAD};
use super::sizes::{PRODUCT_PANELS, PRODUCT_ROWS, STREAM_BLOCKS};
use super::tile_rows::TileRows;
use crate::matmul::gemm::GemmItem;
use crate::simd::prefetch::Streamed;
use crate::simd::vector::{LANES, Lanes};
use crate::weights::bf12::Compact;
use crate::weights::layout::{BLOCK_PAIRS, TILE, pair_stride, tile_stride};

/// All sums of an item whose rows meet tiles that are expanded in registers. `x` has these rows, widened.
#[inline(always)]
pub(super) fn few_compact_rows<L: Lanes>(
    item: &GemmItem<'_, bf16>,
    compact: &Compact,
    x: *const f32,
    packed: &mut TileRows,
) {
    const SUMS_STRIDE: usize = PRODUCT_PANELS * LANES;
    let rows = item.rows.len();
    for first in item.panels.clone().step_by(PRODUCT_PANELS) {
        let panels = first..item.panels.end.min(first + PRODUCT_PANELS);
        let sums = packed.sums_of(rows, PRODUCT_PANELS);
        for (place, panel) in panels.clone().enumerate() {
            // SAFETY: all blocks of the rows, and their sums of a panel.
            unsafe { compact.multiply::<L>(panel, rows, x, sums.as_mut_ptr().add(place * LANES), SUMS_STRIDE) };
        }
        item.finish::<L>(item.rows.clone(), panels, sums, SUMS_STRIDE);
    }
}

/// All sums of an item of at most one product's rows, a few blocks at a time.
#[inline(always)]
pub(super) fn few_rows<L: Lanes>(item: &GemmItem<'_, bf16>, left: *const bf16, packed: &mut TileRows) {
    let matrix = &item.weights.matrix;
    let blocks = matrix.blocks();
    assert!(!matrix.is_plain());
    for panel in item.panels.clone().step_by(PRODUCT_PANELS) {
        let panels = panel..item.panels.end.min(panel + PRODUCT_PANELS);
        let room = packed.expanded(0, STREAM_BLOCKS);
        let sums = packed.sums_of(PRODUCT_ROWS, PRODUCT_PANELS);
        let product = PairsProduct {
            rows: item.rows.len(),
            panels: panels.len(),
            pairs: blocks * BLOCK_PAIRS,
            a: left,
            a_tile_stride: tile_stride(blocks),
            b: room,
            b_pair_stride: pair_stride(LANES),
            b_panel_stride: STREAM_BLOCKS * TILE,
            b_ahead: WEIGHTS_AHEAD,
            streamed: Streamed::Neither,
            c: sums.as_mut_ptr(),
            c_stride: PRODUCT_PANELS * LANES,
            resume: false,
        };
        let Some(mut reader) = matrix.reader(panels.clone(), 0) else { return };
        // SAFETY: `left` has all blocks, the sums are those of a whole product, and there is room for so many blocks.
        unsafe { product.stream::<L>(room, &mut reader) };
        item.finish::<L>(item.rows.clone(), panels, sums, PRODUCT_PANELS * LANES);
    }
}
