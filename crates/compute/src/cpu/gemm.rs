//! Projections of many rows: which part of the output is one item for the team, and what becomes of the sums.

use std::ops::Range;

use super::arithmetic::{Arithmetic, Waiting};
use super::isa::Kernel;
use super::lanes::{LANES, Lanes, padded};
use super::math;
use super::rows::Rows;
use super::shared::Shared;
use super::weights::Projection;

/// y = x · W + bias for all rows of a step, each shard its own columns of y.
pub(crate) struct Gemm<'a, E: Arithmetic> {
    pub(crate) x: Rows<'a, E>,
    /// One part per shard.
    pub(crate) weights: &'a [Projection<E>],
    pub(crate) y: Output<'a, E>,
}

/// What becomes of the sums. Row strides are whole vectors.
pub(crate) enum Output<'a, E: Arithmetic> {
    Store {
        y: Shared<'a, f32>,
        stride: usize,
    },
    /// y += sums
    AddTo {
        y: Shared<'a, f32>,
        stride: usize,
    },
    /// Panels alternate between gate and up: silu(gate) · up, half as wide as W.
    Gated(Waiting<'a, E>),
}

/// How a product is cut into items, in every shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cut {
    row_block: usize,
    panel_block: usize,
    row_blocks: usize,
}

/// Enough for an even finish, few enough that the ticket costs nothing.
const ITEMS_PER_MEMBER: usize = 6;

impl Cut {
    /// `panels` and `members` of one shard.
    fn new(rows: usize, item_rows: usize, panels: usize, members: usize) -> Self {
        let row_block = item_rows.min(rows).max(1);
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

impl<E: Arithmetic> Gemm<'_, E> {
    /// For `members` of each shard.
    pub(crate) fn cut(&self, members: usize) -> Cut {
        let panels = self.weights.iter().map(|part| part.matrix.panels()).max().unwrap_or(0);
        let depth = self.weights.first().map_or(0, |part| part.matrix.depth());
        Cut::new(self.x.len(), E::item_rows(depth), panels, members)
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
        packed: &'a mut E::Packed,
    ) -> PackedItem<'a, E> {
        let weights = &self.weights[shard];
        let all_panels = weights.matrix.panels();
        let panel_blocks = cut.panel_blocks(all_panels);
        let (rows, panels) = (item / panel_blocks * cut.row_block, item % panel_blocks * cut.panel_block);
        let item = GemmItem {
            gemm: self,
            weights,
            rows: rows..(rows + cut.row_block).min(self.x.len()),
            panels: panels..(panels + cut.panel_block).min(all_panels),
        };
        PackedItem { item, packed }
    }
}

/// An item with the buffers of the member that does it.
pub(crate) struct PackedItem<'a, E: Arithmetic> {
    item: GemmItem<'a, E>,
    packed: &'a mut E::Packed,
}

impl<E: Arithmetic> Kernel for PackedItem<'_, E> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self) {
        self.item.check();
        E::multiply::<L>(&self.item, self.packed);
    }
}

/// Rows × panels of one shard of a [`Gemm`], written by one member.
pub(crate) struct GemmItem<'a, E: Arithmetic> {
    pub(crate) gemm: &'a Gemm<'a, E>,
    pub(crate) weights: &'a Projection<E>,
    pub(crate) rows: Range<usize>,
    /// Begin at an even one.
    pub(crate) panels: Range<usize>,
}

impl<E: Arithmetic> GemmItem<'_, E> {
    /// That `finish` stays inside of the output.
    fn check(&self) {
        let (first, width, rows) = (self.weights.first_column, self.weights.matrix.width(), self.gemm.x.len());
        match &self.gemm.y {
            Output::Store { y, stride } | Output::AddTo { y, stride } => {
                assert!(*stride >= first + width && *stride == padded(*stride) && y.len() >= rows * stride);
            }
            Output::Gated(y) => {
                assert!(y.width() >= first + width / 2 && y.rows() >= rows && width.is_multiple_of(2 * LANES))
            }
        }
    }

    /// Puts one row's sums of some panels where they belong.
    #[inline(always)]
    pub(crate) fn finish<L: Lanes>(&self, row: usize, panel: usize, sums: &[f32]) {
        let column = self.weights.first_column + panel * LANES;
        // SAFETY: this item's rows and columns, which are its alone; `check` has seen that they exist.
        unsafe {
            match &self.gemm.y {
                Output::Store { y, stride } => {
                    let y = y.as_ptr().add(row * stride + column);
                    for i in (0..sums.len()).step_by(LANES) {
                        self.biased::<L>(panel, sums, i).store(y.add(i));
                    }
                }
                Output::AddTo { y, stride } => {
                    let y = y.as_ptr().add(row * stride + column);
                    for i in (0..sums.len()).step_by(LANES) {
                        L::load(y.add(i)).add(self.biased::<L>(panel, sums, i)).store(y.add(i));
                    }
                }
                Output::Gated(y) => {
                    for i in (0..sums.len()).step_by(2 * LANES) {
                        let (gate, up) = (self.biased::<L>(panel, sums, i), self.biased::<L>(panel, sums, i + LANES));
                        let column = self.weights.first_column + (panel * LANES + i) / 2;
                        y.put(row, column, math::silu(gate).mul(up));
                    }
                }
            }
        }
    }

    /// 16 sums, `i` columns behind `panel`.
    #[inline(always)]
    fn biased<L: Lanes>(&self, panel: usize, sums: &[f32], i: usize) -> L {
        assert!(i + LANES <= sums.len());
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
            for (item_rows, panels) in
                [12, 96, 256].into_iter().flat_map(|rows| [1, 2, 3, 24, 40, 130].map(|n| (rows, n)))
            {
                for members in [1, 2, 7] {
                    let cut = Cut::new(rows, item_rows, panels, members);
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
