//! Many rows without tiles: all rows of an item pass by one block of a few panels, then by the next block.

use half::bf16;

use super::tile_rows::TileRows;
use super::vectors::{BlockProduct, WIDE_PANELS, Widened};
use crate::matmul::gemm::GemmItem;
use crate::simd::vector::{LANES, Lanes};
use crate::weights::format::{PanelKernel, WeightFormat};
use crate::weights::layout::{BLOCK_PAIRS, TILE, tile_stride};

const SUMS_STRIDE: usize = WIDE_PANELS * LANES;

/// All sums of an item, handed to its `finish`. `left` has the item's rows in tile order.
#[inline(always)]
pub(super) fn in_blocks<L: Lanes>(item: &GemmItem<'_, bf16>, left: *const bf16, packed: &mut TileRows) {
    let (matrix, rows) = (&item.weights.matrix, item.rows.len());
    let blocks = matrix.blocks();
    let mut widened = Widened::new();
    for first in item.panels.clone().step_by(WIDE_PANELS) {
        let panels = first..item.panels.end.min(first + WIDE_PANELS);
        for block in 0..blocks {
            for (place, panel) in panels.clone().enumerate() {
                let ahead = matrix.prefetch_distance(panel, block, panels.len());
                matrix.run_panel::<L>(panel, block, ahead, Widen { widened: &mut widened, place });
            }
            let product = BlockProduct {
                rows,
                panels: panels.len(),
                pairs: BLOCK_PAIRS,
                // SAFETY: inside the rows.
                a: unsafe { left.add(block * TILE) },
                a_tile_stride: tile_stride(blocks),
                c: packed.sums_of(rows, WIDE_PANELS).as_mut_ptr(),
                c_stride: SUMS_STRIDE,
                begins: block == 0,
            };
            // SAFETY: `left` has all blocks of whole tiles of rows; the sums have all rows, the columns all panels.
            unsafe { product.run::<L>(&mut widened) };
        }
        item.finish::<L>(item.rows.clone(), panels, packed.sums_of(rows, WIDE_PANELS), SUMS_STRIDE);
    }
}

/// Widens one block of a panel, as all of them have whole ones.
struct Widen<'a> {
    widened: &'a mut Widened,
    place: usize,
}

impl PanelKernel for Widen<'_> {
    #[inline(always)]
    fn run<L: Lanes, F: WeightFormat>(self, panel: F) {
        // SAFETY: `in_blocks` passes existing blocks.
        unsafe { self.widened.put_columns::<L, F>(self.place, panel, BLOCK_PAIRS) };
    }
}
