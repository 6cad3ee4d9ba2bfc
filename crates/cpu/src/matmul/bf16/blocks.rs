//! Many rows without tiles: all of an item's pass by one block of a few panels, then by the next block.

use std::ops::Range;

use half::bf16;

use super::sizes::{PRODUCT_PANELS, STREAM_BLOCKS};
use super::tile_rows::TileRows;
use super::vectors::{BlockProduct, WIDE_PANELS, Widened};
use crate::matmul::gemm::GemmItem;
use crate::simd::vector::{LANES, Lanes};
use crate::weights::Matrix;
use crate::weights::layout::{BLOCK_PAIRS, TILE, pair_stride, tile_stride};
use crate::weights::tile_reader::TileReader;

const SUMS_STRIDE: usize = WIDE_PANELS * LANES;

/// All sums of an item, handed to its `finish`. `left` has the item's rows in tile order.
#[inline(always)]
pub(super) fn in_blocks<L: Lanes>(item: &GemmItem<'_, bf16>, left: *const bf16, packed: &mut TileRows) {
    let rows = item.rows.len();
    let blocks = item.weights.matrix.blocks();
    let mut widened = Widened::new();
    for first in item.panels.clone().step_by(WIDE_PANELS) {
        let panels = first..item.panels.end.min(first + WIDE_PANELS);
        let mut source = Source::of(&item.weights.matrix, panels.clone());
        for block in 0..blocks {
            source.widen::<L>(block, &mut widened, packed);
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

/// Where the columns of some panels come from.
enum Source<'a> {
    Plain {
        matrix: &'a Matrix<bf16>,
        panels: Range<usize>,
    },
    /// Readers of two panels each.
    Expanded([Option<TileReader<'a>>; WIDE_PANELS / PRODUCT_PANELS]),
}

impl<'a> Source<'a> {
    fn of(matrix: &'a Matrix<bf16>, panels: Range<usize>) -> Self {
        if matrix.is_plain() {
            return Self::Plain { matrix, panels };
        }
        Self::Expanded(std::array::from_fn(|pair| {
            let first = panels.start + pair * PRODUCT_PANELS;
            let of_reader = first..panels.end.min(first + PRODUCT_PANELS);
            if of_reader.is_empty() { None } else { matrix.reader(of_reader, 0) }
        }))
    }

    /// The next block.
    #[inline(always)]
    fn widen<L: Lanes>(&mut self, block: usize, widened: &mut Widened, packed: &mut TileRows) {
        let pair_stride = pair_stride(LANES);
        match self {
            Self::Plain { matrix, panels } => {
                for (place, panel) in panels.clone().enumerate() {
                    let b = matrix.panel(panel).wrapping_add(block * TILE);
                    // SAFETY: a block of the panel.
                    unsafe { widened.put_columns::<L>(place, b, pair_stride, BLOCK_PAIRS) };
                }
            }
            Self::Expanded(readers) => {
                for (pair, reader) in readers.iter_mut().enumerate() {
                    let Some(reader) = reader else { continue };
                    let tiles = packed.expanded(0, STREAM_BLOCKS);
                    let stride = STREAM_BLOCKS * TILE;
                    // SAFETY: there is room for both tiles.
                    unsafe {
                        reader.next::<L>(1, tiles, stride);
                        for panel in 0..reader.panels() {
                            let tile = tiles.add(panel * stride);
                            widened.put_columns::<L>(pair * PRODUCT_PANELS + panel, tile, pair_stride, BLOCK_PAIRS);
                        }
                    }
                }
            }
        }
    }
}
