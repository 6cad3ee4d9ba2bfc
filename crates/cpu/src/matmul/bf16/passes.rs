//! The order in which an item's rows are multiplied with its weights.

use std::ops::Range;

use super::sizes::{NEAR_BLOCKS, ONE_PASS_BLOCKS, PRODUCT_PANELS, SLICED_PANELS};
use crate::weights::layout::WHOLE_BLOCKS;

/// What one pass over an item's rows multiplies them with.
#[derive(Clone)]
pub(super) struct Pass {
    pub(super) panels: Range<usize>,
    pub(super) blocks: Range<usize>,
    /// Passes of these panels that are left, with this one, before those of other panels.
    pub(super) left: usize,
    pub(super) sums: SumsAt,
}

/// Where sums wait for those of other blocks, and to be finished.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SumsAt {
    /// Those of one product at a time: a pass has all blocks.
    Product,
    /// Those of all rows, in this buffer, which the next two panels do not use.
    Buffer(usize),
}

/// How many blocks of k are taken at a time.
#[derive(Clone, Copy)]
pub(super) struct PassBlocks {
    /// For a whole group of panels, where there are more than [`WHOLE_BLOCKS`].
    pub(super) slice: usize,
    /// For two panels.
    pub(super) pass: usize,
}

/// For few rows: their slices are as deep as matmuls that are not cut.
pub(super) const LONG_PASSES: PassBlocks = PassBlocks { slice: WHOLE_BLOCKS, pass: WHOLE_BLOCKS };

impl PassBlocks {
    /// For many rows: nearly all that they pass by stays in the first-level cache. The sums of a group of panels wait in the
    /// second-level cache, too, so slices are half as deep.
    pub(super) fn near(blocks: usize) -> Self {
        const SLICE: usize = WHOLE_BLOCKS / 2;
        let cut = if blocks > WHOLE_BLOCKS { SLICE } else { blocks.max(1) };
        let passes = if cut > ONE_PASS_BLOCKS { cut.div_ceil(NEAR_BLOCKS) } else { 1 };
        Self { slice: SLICE, pass: cut.div_ceil(passes) }
    }
}

/// A group of panels passes one slice of k after the other; of a slice two panels at a time, some blocks at a time.
///
/// ```text
///   k        | slice               | slice …      an item's rows, in the second-level cache
///   panels   | pass | pass | pass | …             of two panels, near while all rows pass by
///            | pass | pass | pass | …
/// ```
#[derive(Clone)]
pub(super) struct Passes {
    panels: Range<usize>,
    blocks: usize,
    slice_blocks: usize,
    pass_blocks: usize,
    /// The next one.
    panel: usize,
    block: usize,
    slice: Range<usize>,
    group: Range<usize>,
}

impl Passes {
    pub(super) fn new(panels: Range<usize>, blocks: usize, of: PassBlocks) -> Self {
        let (panel, pass_blocks) = (panels.start, of.pass);
        let slice_blocks = if blocks > WHOLE_BLOCKS { of.slice } else { blocks };
        let (group, slice) = (Self::group(panel, &panels, blocks), 0..slice_blocks);
        Self { panels, blocks, slice_blocks, pass_blocks, panel, block: 0, slice, group }
    }

    fn group(first: usize, panels: &Range<usize>, blocks: usize) -> Range<usize> {
        first..panels.end.min(first + if blocks > WHOLE_BLOCKS { SLICED_PANELS } else { PRODUCT_PANELS })
    }
}

impl Iterator for Passes {
    type Item = Pass;

    #[inline(always)]
    fn next(&mut self) -> Option<Pass> {
        if self.block == self.slice.end {
            self.panel = self.group.end.min(self.panel + PRODUCT_PANELS);
            self.block = self.slice.start;
        }
        if self.panel == self.group.end {
            self.panel = self.group.start;
            self.slice = self.slice.end..self.blocks.min(self.slice.end + self.slice_blocks);
            if self.slice.is_empty() {
                self.panel = self.group.end;
                self.group = Self::group(self.panel, &self.panels, self.blocks);
                self.slice = 0..self.slice_blocks;
            }
            self.block = self.slice.start;
        }
        let panels = self.panel..self.group.end.min(self.panel + PRODUCT_PANELS);
        let blocks = self.block..self.slice.end.min(self.block + self.pass_blocks);
        self.block = blocks.end;
        let left = (self.slice.end - blocks.start).div_ceil(self.pass_blocks);
        let sums = match self.blocks {
            n if n <= self.pass_blocks => SumsAt::Product,
            ..=WHOLE_BLOCKS => SumsAt::Buffer((panels.start - self.panels.start) / PRODUCT_PANELS % 2),
            _ => SumsAt::Buffer((panels.start - self.group.start) / PRODUCT_PANELS),
        };
        (!panels.is_empty()).then_some(Pass { panels, blocks, left, sums })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_passes_are_even_and_few() {
        let passes = [1, 16, 18, 24, 28, 29, 32, 40, 48, 56, 64, 65, 256].map(|blocks| PassBlocks::near(blocks).pass);
        assert_eq!(passes, [1, 16, 18, 24, 28, 15, 16, 20, 16, 19, 16, 16, 16]);
    }

    #[test]
    fn passes_cover_everything_once_and_go_on_along_k() {
        let shapes = [
            (0..2, 1),
            (4..9, 64),
            (0..6, 16),
            (0..6, 17),
            (2..7, 24),
            (0..6, 29),
            (2..7, 56),
            (0..33, 65),
            (6..71, 200),
            (0..130, 70),
            (2..2, 9),
        ];
        for ((panels, blocks), of) in
            shapes.into_iter().flat_map(|shape| [PassBlocks::near(shape.1), LONG_PASSES].map(|of| (shape.clone(), of)))
        {
            let (mut done, mut places, mut before) = (vec![0; panels.end], Vec::new(), None::<Pass>);
            let slice = if blocks > WHOLE_BLOCKS { of.slice } else { WHOLE_BLOCKS };
            for pass in Passes::new(panels.clone(), blocks, of) {
                assert!(pass.panels.len() <= PRODUCT_PANELS && (1..=of.pass).contains(&pass.blocks.len()));
                assert!(pass.panels.len() == PRODUCT_PANELS || pass.panels.end == panels.end);
                assert_eq!(pass.blocks.start / slice, (pass.blocks.end - 1) / slice);
                if let Some(before) = before {
                    let goes_on = pass.panels == before.panels && pass.blocks.start == before.blocks.end;
                    assert_eq!(goes_on && before.left > 1, before.left > 1, "one left less each time");
                    assert!(before.left == 1 || pass.left + 1 == before.left);
                    // What is to be finished still lies elsewhere.
                    assert!(goes_on || blocks <= of.pass || pass.sums != before.sums);
                }
                match pass.sums {
                    SumsAt::Product => assert!(blocks <= of.pass),
                    SumsAt::Buffer(buffer) => places.push((pass.panels.start / 2, buffer)),
                }
                before = Some(pass.clone());
                for panel in pass.panels.clone() {
                    assert_eq!(done[panel], pass.blocks.start, "panel {panel} of {panels:?}");
                    done[panel] = pass.blocks.end;
                }
            }
            // The sums of two panels wait in one buffer, which no others of their group use.
            places.sort_unstable();
            places.dedup();
            assert_eq!(places.len(), if blocks > of.pass { panels.len().div_ceil(PRODUCT_PANELS) } else { 0 });
            let group = if blocks > WHOLE_BLOCKS { SLICED_PANELS / PRODUCT_PANELS } else { 2 };
            for group in places.chunks(group) {
                assert!(group.iter().enumerate().all(|(i, place)| place.1 == i), "{group:?}");
            }
            assert!((0..panels.end).all(|panel| done[panel] == if panels.contains(&panel) { blocks } else { 0 }));
        }
    }
}
