//! Up to two tiles of rows, and weights that have to be expanded: a few blocks of these are, then multiplied, while the sums stay in
//! their tiles.

use half::bf16;

use super::product::{TileProduct, WEIGHTS_AHEAD};
use super::sizes::{PRODUCT_PANELS, PRODUCT_ROWS, STREAM_BLOCKS};
use super::tile_rows::TileRows;
use crate::matmul::gemm::GemmItem;
use crate::simd::amx;
use crate::simd::prefetch::Streamed;
use crate::simd::vector::{LANES, Lanes};
use crate::weights::layout::{BLOCK_PAIRS, TILE, TILE_ROWS, pair_stride, tile_stride};
use crate::weights::tile_reader::TileReader;

/// All sums of an item of at most one product's rows, handed to its `finish`. `left` has them in tile order.
#[inline(always)]
pub(super) fn streamed<L: Lanes>(item: &GemmItem<'_, bf16>, left: *const bf16, packed: &mut TileRows) {
    let matrix = &item.weights.matrix;
    let blocks = matrix.blocks();
    for panel in item.panels.clone().step_by(PRODUCT_PANELS) {
        let panels = panel..item.panels.end.min(panel + PRODUCT_PANELS);
        let room = packed.expanded(0, STREAM_BLOCKS);
        let sums = packed.sums_of(PRODUCT_ROWS, PRODUCT_PANELS);
        let product = TileProduct {
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
        let Some(reader) = TileReader::new(matrix, panels.clone(), 0) else { return };
        // SAFETY: `left` has all blocks, the sums are those of a whole product, and there is room for [`STREAM_BLOCKS`].
        unsafe { product.stream::<L>(room, reader) };
        item.finish::<L>(item.rows.clone(), panels, sums, PRODUCT_PANELS * LANES);
    }
}

impl TileProduct {
    /// With B as it is read. `room` is where `b` is.
    ///
    /// # Safety
    /// [`STREAM_BLOCKS`] of each panel are writable there, and tiles are configured.
    #[inline(always)]
    pub(super) unsafe fn stream<L: Lanes>(&self, room: *mut bf16, reader: TileReader<'_>) {
        debug_assert!(self.b == room);
        // SAFETY: the caller's promise.
        unsafe {
            match (self.rows > TILE_ROWS, self.panels) {
                (true, 2) => self.stream_tiles::<L, 2, 2>(room, reader),
                (false, 2) => self.stream_tiles::<L, 1, 2>(room, reader),
                _ => {
                    for row in (0..self.rows).step_by(TILE_ROWS) {
                        self.at_row(row).stream_tiles::<L, 1, 1>(room, reader.clone());
                    }
                }
            }
        }
    }

    /// # Safety
    /// As above.
    #[inline(always)]
    unsafe fn stream_tiles<L: Lanes, const ROWS: usize, const COLUMNS: usize>(
        &self,
        room: *mut bf16,
        mut reader: TileReader<'_>,
    ) {
        let (blocks, c_bytes) = (self.pairs / BLOCK_PAIRS, self.c_stride * size_of::<f32>());
        // SAFETY: the caller's promise; A and C hold whole tiles.
        unsafe {
            amx::begin::<ROWS, COLUMNS>(self.c, c_bytes, self.resume);
            // Tiles that were written just now take long to load, and between products vectors wait.
            for first in (0..blocks).step_by(STREAM_BLOCKS) {
                let some = STREAM_BLOCKS.min(blocks - first);
                reader.next::<L>(some, room, self.b_panel_stride);
                let product = Self { a: self.a.add(first * TILE), ..*self };
                for block in 0..some {
                    amx::add::<ROWS, COLUMNS>(&product.operands(block));
                }
            }
            amx::end::<ROWS, COLUMNS>(self.c, c_bytes);
        }
    }
}
