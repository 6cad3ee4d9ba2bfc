//! In which order an item's rows meet its weights.

use std::ops::Range;

use super::{PRODUCT_PANELS, SLICE_BLOCKS, SLICED_PANELS};

/// What one pass over an item's rows multiplies them with.
#[derive(Clone)]
pub(super) struct Pass {
    pub(super) panels: Range<usize>,
    pub(super) blocks: Range<usize>,
    /// Where its sums wait for those of other blocks.
    pub(super) waiting: Waiting,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Waiting {
    /// They do not.
    None,
    /// Until the next pass.
    Near,
    /// At this place, while other panels of their group pass by.
    InGroup(usize),
}

impl Pass {
    pub(super) fn tiles(&self) -> usize {
        self.panels.len() * self.blocks.len()
    }
}

/// Of a group of panels one slice of k after the other; of a slice pairs of panels, some blocks at a time.
///
/// ```text
///   k        | slice               | slice …      an item's rows, in the second-level cache
///   panels   | pass | pass | pass | …             of a pair, in the first-level cache while all rows pass by
///            | pass | pass | pass | …
/// ```
#[derive(Clone)]
pub(super) struct Passes {
    panels: Range<usize>,
    blocks: usize,
    most_blocks: usize,
    /// The next one.
    panel: usize,
    block: usize,
    slice: Range<usize>,
    group: Range<usize>,
}

impl Passes {
    /// Of `most_blocks` each, at most.
    pub(super) fn new(panels: Range<usize>, blocks: usize, most_blocks: usize) -> Self {
        let (panel, slice) = (panels.start, 0..blocks.min(SLICE_BLOCKS));
        Self { group: Self::group(panel, &panels, blocks), panels, blocks, most_blocks, panel, block: 0, slice }
    }

    fn group(first: usize, panels: &Range<usize>, blocks: usize) -> Range<usize> {
        first..panels.end.min(first + if blocks > SLICE_BLOCKS { SLICED_PANELS } else { PRODUCT_PANELS })
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
            self.slice = self.slice.end..self.blocks.min(self.slice.end + SLICE_BLOCKS);
            if self.slice.is_empty() {
                self.panel = self.group.end;
                self.group = Self::group(self.panel, &self.panels, self.blocks);
                self.slice = 0..self.blocks.min(SLICE_BLOCKS);
            }
            self.block = self.slice.start;
        }
        let panels = self.panel..self.group.end.min(self.panel + PRODUCT_PANELS);
        let blocks = self.block..self.slice.end.min(self.block + self.most_blocks);
        self.block = blocks.end;
        let waiting = match self.blocks {
            n if n <= self.most_blocks => Waiting::None,
            ..=SLICE_BLOCKS => Waiting::Near,
            _ => Waiting::InGroup((panels.start - self.group.start) / PRODUCT_PANELS),
        };
        (!panels.is_empty()).then_some(Pass { panels, blocks, waiting })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passes_cover_everything_once_and_go_on_along_k() {
        let shapes = [(0..2, 1), (4..9, 64), (0..6, 16), (0..6, 17), (2..7, 24), (0..33, 65), (6..71, 200), (2..2, 9)];
        for ((panels, blocks), most) in
            shapes.into_iter().flat_map(|shape| [16, SLICE_BLOCKS].map(|most| (shape.clone(), most)))
        {
            let (mut done, mut places, mut open) = (vec![0; panels.end], Vec::new(), None);
            for pass in Passes::new(panels.clone(), blocks, most) {
                assert!(pass.panels.len() <= PRODUCT_PANELS && (1..=most).contains(&pass.blocks.len()));
                assert!(pass.panels.len() == PRODUCT_PANELS || pass.panels.end == panels.end);
                match pass.waiting {
                    Waiting::None => assert!(blocks <= most),
                    // Nobody else has this place before the sums are finished.
                    Waiting::Near => {
                        assert!(blocks <= SLICE_BLOCKS && open.is_none_or(|open| open == pass.panels.start))
                    }
                    Waiting::InGroup(place) => places.push((pass.panels.start / 2, place)),
                }
                open = (pass.blocks.end < blocks).then_some(pass.panels.start);
                for panel in pass.panels.clone() {
                    assert_eq!(done[panel], pass.blocks.start, "panel {panel} of {panels:?}");
                    done[panel] = pass.blocks.end;
                }
            }
            // The sums of a pair of panels wait at one place, which no other of its group has.
            places.sort_unstable();
            places.dedup();
            assert_eq!(places.len(), if blocks > SLICE_BLOCKS { panels.len().div_ceil(PRODUCT_PANELS) } else { 0 });
            for group in places.chunks(SLICED_PANELS / PRODUCT_PANELS) {
                assert!(group.iter().enumerate().all(|(i, place)| place.1 == i), "{group:?}");
            }
            assert!((0..panels.end).all(|panel| done[panel] == if panels.contains(&panel) { blocks } else { 0 }));
        }
    }
}
