//! Many rows: all rows of an item pass by two panels of weights, then by the next two.

use half::bf16;

use super::expanding::Expanding;
use super::next_weights::NextWeights;
use super::overlap::Overlap;
use super::passes::{LONG_PASSES, Pass, PassBlocks, Passes, SumsAt};
use super::product::{TileProduct, WEIGHTS_AHEAD};
use super::sizes::{NEAR_PRODUCTS, PRODUCT_PANELS, PRODUCT_ROWS, PRODUCT_SUMS};
use super::tile_rows::TileRows;
use crate::matmul::gemm::GemmItem;
use crate::simd::prefetch::Streamed;
use crate::simd::vector::{LANES, Lanes};
use crate::weights::Matrix;
use crate::weights::layout::{BLOCK_DEPTH, BLOCK_PAIRS, TILE, TILE_ROWS, pair_stride, tile_stride};

/// All sums of an item, handed to its `finish`. `left` has the item's rows in tile order.
#[inline(always)]
pub(super) fn many_rows<L: Lanes>(item: &GemmItem<'_, bf16>, left: *const bf16, packed: &mut TileRows) {
    let matrix = &item.weights.matrix;
    let blocks = matrix.blocks();
    let products = item.rows.len().div_ceil(PRODUCT_ROWS);
    let (streamed, of) = match products {
        NEAR_PRODUCTS.. => (Streamed::Left, PassBlocks::near(blocks)),
        _ => (Streamed::Neither, LONG_PASSES),
    };
    let rows = PassingRows { item, left, blocks, products, streamed };
    let is_own = |pass: &Pass| pass.panels.start < item.panels.end;
    // Behind the last one comes the next item's first.
    let next_items = Passes::new(item.panels.end..matrix.panels(), blocks, of);
    let mut passes = Passes::new(item.panels.clone(), blocks, of).chain(next_items);
    let (mut now, mut next) = (passes.next(), passes.next());
    let mut overlap = Overlap::new(item);
    let mut half = 0;
    if let Some(pass) = &now {
        // SAFETY: the first half is free.
        overlap.expanding = unsafe { Expanding::new(pass, matrix, packed.expanded(half, pass.blocks.len())) };
    }
    while let Some(pass) = now.take_if(|pass| is_own(pass)) {
        let after_next = passes.next();
        let right = match overlap.expanding.take().map(Expanding::complete::<L>) {
            Some((b, panel_stride)) => Right { b, panel_stride },
            None => Right::in_memory(matrix, &pass),
        };
        let (weights, steps) = (next_weights(matrix, next.as_ref(), after_next.as_ref()), rows.steps::<L>(&pass));
        // Prefetched before the next pass begins.
        let is_next_near = weights.left() <= steps;
        overlap.next_weights = if is_next_near || matrix.is_plain() { weights } else { NextWeights::nothing() };
        half = 1 - half;
        if let Some(next) = next.as_ref().filter(|pass| is_own(pass)) {
            // SAFETY: this pass reads the other half.
            let expanding = unsafe { Expanding::new(next, matrix, packed.expanded(half, next.blocks.len())) };
            overlap.expanding = expanding.map(|expanding| match is_next_near {
                true => expanding.without_prefetch(),
                false => expanding.within(steps),
            });
        }
        match pass.sums {
            SumsAt::Product => rows.by_products::<L>(&pass, &right, packed, &mut overlap),
            SumsAt::Buffer(buffer) => rows.by_panels::<L>(&pass, buffer, &right, packed, &mut overlap),
        }
        (now, next) = (next, after_next);
    }
    overlap.finish_all::<L>();
}

/// The weights of both panels of the next pass, to be prefetched. They are one run of memory if the pass has all their blocks.
fn next_weights(matrix: &Matrix<bf16>, pass: Option<&Pass>, then: Option<&Pass>) -> NextWeights {
    let Some(pass) = pass else { return NextWeights::nothing() };
    let then = then.map_or((matrix.panels(), 0), |pass| (pass.panels.start, pass.blocks.start));
    let then = matrix.address(then.0, then.1);
    let (first, block) = (pass.panels.start, pass.blocks.start);
    let panel_bytes = pass.blocks.len() * matrix.block_bytes(first);
    let are_whole = pass.blocks.len() * BLOCK_DEPTH >= matrix.depth();
    if are_whole || pass.panels.len() < PRODUCT_PANELS {
        return NextWeights::new(matrix.address(first, block), None, pass.panels.len() * panel_bytes, then);
    }
    NextWeights::new(matrix.address(first, block), Some(matrix.address(first + 1, block)), panel_bytes, then)
}

/// The weights of a pass as tiles: blocks of a panel follow each other.
struct Right {
    b: *const bf16,
    panel_stride: usize,
}

impl Right {
    fn in_memory(matrix: &Matrix<bf16>, pass: &Pass) -> Self {
        let b = matrix.panel(pass.panels.start).wrapping_add(pass.blocks.start * TILE);
        Self { b, panel_stride: matrix.panel_stride() }
    }
}

/// An item's rows, which are multiplied in one pass after the other.
struct PassingRows<'a> {
    item: &'a GemmItem<'a, bf16>,
    /// In tile order.
    left: *const bf16,
    /// Blocks of k.
    blocks: usize,
    products: usize,
    streamed: Streamed,
}

impl PassingRows<'_> {
    /// The number of tile products of a pass that other work is done beside: those of two tiles of rows and two panels.
    #[inline(always)]
    fn beside<L: Lanes>(&self, pass: &Pass) -> usize {
        let is_tiled = L::TILES && pass.panels.len() == PRODUCT_PANELS;
        if is_tiled { (self.item.rows.len() + TILE_ROWS - 1) / PRODUCT_ROWS } else { 0 }
    }

    /// Blocks of all of these products.
    #[inline(always)]
    fn steps<L: Lanes>(&self, pass: &Pass) -> usize {
        self.beside::<L>(pass) * pass.blocks.len()
    }

    /// A pass of all blocks: one product's sums are finished while the next one's are computed.
    #[inline(always)]
    fn by_products<L: Lanes>(&self, pass: &Pass, right: &Right, packed: &mut TileRows, overlap: &mut Overlap<'_>) {
        overlap.finish_within(pass.blocks.len(), PRODUCT_ROWS);
        for product in 0..self.products {
            let c = packed.other_sums();
            self.multiply::<L>(product, pass, right, c, overlap);
            let first = self.item.rows.start + product * PRODUCT_ROWS;
            let rows = first..self.item.rows.end.min(first + PRODUCT_ROWS);
            // SAFETY: the next product's sums go to the other buffer.
            unsafe { overlap.finish_next::<L>(rows, pass.panels.clone(), c) };
        }
    }

    /// A pass of some blocks: sums are resumed from pass to pass, and finished while the next two panels are multiplied.
    #[inline(always)]
    fn by_panels<L: Lanes>(
        &self,
        pass: &Pass,
        buffer: usize,
        right: &Right,
        packed: &mut TileRows,
        overlap: &mut Overlap<'_>,
    ) {
        overlap.finish_within(self.steps::<L>(pass), overlap.unfinished().div_ceil(pass.left));
        let sums = packed.sums(buffer * self.products, self.products);
        for product in 0..self.products {
            let next = if product + 1 < self.products { product + 1 } else { 0 };
            overlap.resume_next(sums.wrapping_add(next * PRODUCT_SUMS));
            self.multiply::<L>(product, pass, right, sums.wrapping_add(product * PRODUCT_SUMS), overlap);
        }
        if pass.left == 1 {
            // Sums of the two panels before: the next pass may take their buffer.
            overlap.finish_all::<L>();
        }
        if pass.blocks.end == self.blocks {
            // SAFETY: sums of all rows, one after the other. They are finished with the last pass of the next two panels, whose sums are
            // in another buffer.
            unsafe { overlap.finish_next::<L>(self.item.rows.clone(), pass.panels.clone(), sums) };
        }
    }

    /// Sums of one product, at `c`.
    #[inline(always)]
    fn multiply<L: Lanes>(&self, product: usize, pass: &Pass, right: &Right, c: *mut f32, overlap: &mut Overlap<'_>) {
        let (first_row, tile_stride) = (product * PRODUCT_ROWS, tile_stride(self.blocks));
        let of_blocks = TileProduct {
            rows: (self.item.rows.len() - first_row).min(PRODUCT_ROWS),
            panels: pass.panels.len(),
            pairs: pass.blocks.len() * BLOCK_PAIRS,
            // SAFETY: `left` has all blocks of whole tiles of rows.
            a: unsafe { self.left.add(first_row / TILE_ROWS * tile_stride + pass.blocks.start * TILE) },
            a_tile_stride: tile_stride,
            b: right.b,
            b_pair_stride: pair_stride(LANES),
            b_panel_stride: right.panel_stride,
            b_ahead: WEIGHTS_AHEAD,
            streamed: self.streamed,
            c,
            c_stride: PRODUCT_PANELS * LANES,
            resume: pass.blocks.start > 0,
        };
        if product < self.beside::<L>(pass) {
            // SAFETY: below `Isa::run`, which has configured the tiles; there are two of rows, two panels of weights, and room for
            // the sums of both.
            return unsafe { of_blocks.run_overlapped::<L>(overlap) };
        }
        L::call(of_blocks);
    }
}

#[cfg(test)]
mod tests;
