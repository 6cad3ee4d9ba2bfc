//! Projections of many rows: which part of the output is one item for the team, and what becomes of the sums.

use std::ops::Range;

use super::element::Element;
use super::isa::Kernel;
use super::lanes::{LANES, Lanes, padded};
use super::math;
use super::packed_rows::{PackedRows, Rows};
use super::product::{MAX_TILE_ROWS, Product};
use super::shared::Shared;
use super::weights::{Matrix, Projection};

/// y = epilogue(x · W + bias) for all rows of a step, each shard its own columns of y.
pub(crate) struct Gemm<'a, E> {
    pub(crate) x: Rows<'a>,
    /// One part per shard.
    pub(crate) weights: &'a [Projection<E>],
    pub(crate) y: Shared<'a, f32>,
    pub(crate) y_stride: usize,
    pub(crate) epilogue: Epilogue,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Epilogue {
    Store,
    /// y += sums
    AddTo,
    /// Panels alternate between gate and up: y = silu(gate) · up, half as wide as W.
    Gated,
}

/// How a product is cut into items, in every shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cut {
    row_block: usize,
    panel_block: usize,
    row_blocks: usize,
}

/// Rows of an item stay in the second-level cache while the item's panels pass by.
const ROW_BLOCK_BYTES: usize = 512 << 10;
/// Beyond that they save no more reads of W.
const MAX_BLOCK_ROWS: usize = 8 * MAX_TILE_ROWS;
/// Enough for an even finish, few enough that the ticket costs nothing.
const ITEMS_PER_MEMBER: usize = 6;

impl Cut {
    /// `panels` and `members` of one shard.
    fn new(rows: usize, panels: usize, depth: usize, members: usize) -> Self {
        let most_rows = (ROW_BLOCK_BYTES / (depth * size_of::<f32>()).max(1)).clamp(MAX_TILE_ROWS, MAX_BLOCK_ROWS);
        let row_block = (most_rows / MAX_TILE_ROWS * MAX_TILE_ROWS).min(rows).max(1);
        let row_blocks = rows.div_ceil(row_block);
        let wanted = (members * ITEMS_PER_MEMBER).div_ceil(row_blocks);
        // Even, so that gate and up stay together.
        let panel_block = panels.div_ceil(wanted).next_multiple_of(4).min(panels.next_multiple_of(2)).max(2);
        Self { row_block, panel_block, row_blocks }
    }

    fn panel_blocks(&self, panels: usize) -> usize {
        panels.div_ceil(self.panel_block)
    }
}

impl<E: Element> Gemm<'_, E> {
    /// For `members` of each shard.
    pub(crate) fn cut(&self, members: usize) -> Cut {
        let panels = self.weights.iter().map(|part| part.matrix.panels()).max().unwrap_or(0);
        let depth = self.weights.first().map_or(0, |part| part.matrix.depth());
        Cut::new(self.x.len(), panels, depth, members)
    }

    pub(crate) fn items(&self, cut: &Cut, shard: usize) -> usize {
        cut.row_blocks * cut.panel_blocks(self.weights[shard].matrix.panels())
    }

    /// Neighbouring items share their rows.
    pub(crate) fn item<'a>(
        &'a self,
        cut: &Cut,
        shard: usize,
        item: usize,
        packed: &'a mut PackedRows,
    ) -> GemmItem<'a, E> {
        let weights = &self.weights[shard];
        let all_panels = weights.matrix.panels();
        let panel_blocks = cut.panel_blocks(all_panels);
        let (rows, panels) = (item / panel_blocks * cut.row_block, item % panel_blocks * cut.panel_block);
        GemmItem {
            gemm: self,
            weights,
            rows: rows..(rows + cut.row_block).min(self.x.len()),
            panels: panels..(panels + cut.panel_block).min(all_panels),
            packed,
        }
    }
}

/// Rows × panels of one shard of a [`Gemm`], written by one member.
pub(crate) struct GemmItem<'a, E> {
    gemm: &'a Gemm<'a, E>,
    weights: &'a Projection<E>,
    rows: Range<usize>,
    panels: Range<usize>,
    packed: &'a mut PackedRows,
}

/// Panels whose sums are kept at once.
const TILE_PANELS: usize = 8;

#[repr(align(64))]
struct Sums([f32; MAX_TILE_ROWS * TILE_PANELS * LANES]);

impl<E: Element> Kernel for GemmItem<'_, E> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self) {
        let gemm = self.gemm;
        let matrix = &self.weights.matrix;
        let depth = matrix.depth();
        let width = if gemm.epilogue == Epilogue::Gated { matrix.width() / 2 } else { matrix.width() };
        assert!(gemm.y_stride >= self.weights.first_column + width && gemm.y_stride == padded(gemm.y_stride));
        assert!(gemm.y.len() >= gemm.x.len() * gemm.y_stride);
        self.packed.pack::<L>(&gemm.x, depth, self.rows.clone());
        // Many rows: few panels at a time, which stay in the first-level cache for all of them.
        let panel_step = if self.rows.len() >= 2 * MAX_TILE_ROWS { 2 } else { TILE_PANELS };
        let mut sums = Sums([0.0; MAX_TILE_ROWS * TILE_PANELS * LANES]);
        for panel in self.panels.clone().step_by(panel_step) {
            let panels = panel_step.min(self.panels.end - panel);
            for row in self.rows.clone().step_by(MAX_TILE_ROWS) {
                let rows = MAX_TILE_ROWS.min(self.rows.end - row);
                // A tile of packed rows has `depth` k, as has a panel of W; `sums` holds a full tile.
                L::call(Product::<E, 1> {
                    rows,
                    panels,
                    depth,
                    a: self.packed.tile(row - self.rows.start, depth),
                    a_step: rows,
                    b: matrix.panel(panel),
                    b_pair_stride: Matrix::<E>::PAIR_STRIDE,
                    b_panel_stride: matrix.panel_stride(),
                    c: sums.0.as_mut_ptr(),
                    c_stride: TILE_PANELS * LANES,
                    resume: false,
                });
                for r in 0..rows {
                    let sums = &sums.0[r * TILE_PANELS * LANES..][..panels * LANES];
                    self.finish::<L>(row + r, panel, sums);
                }
            }
        }
    }
}

impl<E: Element> GemmItem<'_, E> {
    /// Puts one row's sums of some panels where they belong.
    #[inline(always)]
    fn finish<L: Lanes>(&self, row: usize, panel: usize, sums: &[f32]) {
        let gemm = self.gemm;
        // SAFETY: this item's rows and columns, which are its alone; widths were checked on entry.
        unsafe {
            let y = gemm.y.as_ptr().add(row * gemm.y_stride + self.weights.first_column);
            match gemm.epilogue {
                Epilogue::Store => {
                    for i in (0..sums.len()).step_by(LANES) {
                        self.biased::<L>(panel, sums, i).store(y.add(panel * LANES + i));
                    }
                }
                Epilogue::AddTo => {
                    for i in (0..sums.len()).step_by(LANES) {
                        let y = y.add(panel * LANES + i);
                        L::load(y).add(self.biased::<L>(panel, sums, i)).store(y);
                    }
                }
                Epilogue::Gated => {
                    for i in (0..sums.len()).step_by(2 * LANES) {
                        let (gate, up) = (self.biased::<L>(panel, sums, i), self.biased::<L>(panel, sums, i + LANES));
                        math::silu(gate).mul(up).store(y.add((panel * LANES + i) / 2));
                    }
                }
            }
        }
    }

    /// 16 sums, `i` columns behind `panel`.
    #[inline(always)]
    fn biased<L: Lanes>(&self, panel: usize, sums: &[f32], i: usize) -> L {
        // SAFETY: whole vectors inside the sums, and the bias is as wide as the matrix.
        unsafe {
            let sums = L::load(sums.as_ptr().add(i));
            match &self.weights.bias {
                Some(bias) => sums.add(L::load(bias[panel * LANES + i..].as_ptr())),
                None => sums,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_cover_everything_once() {
        for rows in [1, 2, 7, 12, 97, 512] {
            for panels in [1, 2, 3, 24, 40, 130] {
                for members in [1, 2, 7] {
                    let cut = Cut::new(rows, panels, 384, members);
                    assert!(cut.row_block * cut.row_blocks >= rows && cut.row_block * (cut.row_blocks - 1) < rows);
                    // A shard may have fewer panels than the one that the cut was made for.
                    for panels in [panels, panels - 1] {
                        let blocks = cut.panel_blocks(panels);
                        assert!(
                            cut.panel_block * blocks >= panels && cut.panel_block * blocks < panels + cut.panel_block
                        );
                    }
                    assert_eq!(cut.panel_block % 2, 0);
                }
            }
        }
    }
}
