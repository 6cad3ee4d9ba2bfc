//! In which order an item's rows meet its weights.

use std::ops::Range;

use super::{PRODUCT_PANELS, SLICE_BLOCKS, SLICED_PANELS};

/// What one pass over an item's rows multiplies them with.
#[derive(Clone)]
pub(super) struct Pass {
    pub(super) panels: Range<usize>,
    pub(super) blocks: Range<usize>,
    /// Whether its sums wait for those of other blocks; if so, at this place of their group.
    pub(super) is_slice: bool,
    pub(super) in_group: usize,
}

impl Pass {
    pub(super) fn tiles(&self) -> usize {
        self.panels.len() * self.blocks.len()
    }
}

/// Pairs of panels, or of a group of panels one slice of k after the other.
#[derive(Clone)]
pub(super) struct Passes {
    panels: Range<usize>,
    blocks: usize,
    /// The next one.
    panel: usize,
    block: usize,
    group: Range<usize>,
}

impl Passes {
    pub(super) fn new(panels: Range<usize>, blocks: usize) -> Self {
        Self { panel: panels.start, block: 0, group: Self::group(panels.start, &panels, blocks), panels, blocks }
    }

    fn group(first: usize, panels: &Range<usize>, blocks: usize) -> Range<usize> {
        first..panels.end.min(first + if blocks > SLICE_BLOCKS { SLICED_PANELS } else { PRODUCT_PANELS })
    }
}

impl Iterator for Passes {
    type Item = Pass;

    #[inline(always)]
    fn next(&mut self) -> Option<Pass> {
        if self.panel == self.group.end {
            self.panel = self.group.start;
            self.block += SLICE_BLOCKS;
        }
        if self.block >= self.blocks {
            self.block = 0;
            self.panel = self.group.end;
            self.group = Self::group(self.panel, &self.panels, self.blocks);
        }
        let panels = self.panel..self.group.end.min(self.panel + PRODUCT_PANELS);
        self.panel = panels.end;
        (!panels.is_empty()).then(|| Pass {
            in_group: (panels.start - self.group.start) / PRODUCT_PANELS,
            panels,
            blocks: self.block..self.blocks.min(self.block + SLICE_BLOCKS),
            is_slice: self.blocks > SLICE_BLOCKS,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passes_cover_everything_once_and_go_on_along_k() {
        for (panels, blocks) in [(0..2, 1), (4..9, 64), (0..33, 65), (6..71, 200), (2..2, 9)] {
            let (mut done, mut places) = (vec![0; panels.end], Vec::new());
            for pass in Passes::new(panels.clone(), blocks) {
                assert!(pass.panels.len() <= PRODUCT_PANELS && pass.blocks.len() <= SLICE_BLOCKS);
                assert!(pass.in_group < SLICED_PANELS / PRODUCT_PANELS && pass.is_slice == (blocks > SLICE_BLOCKS));
                assert!(pass.panels.len() == PRODUCT_PANELS || pass.panels.end == panels.end);
                places.push((pass.panels.start / 2, pass.in_group));
                for panel in pass.panels.clone() {
                    assert_eq!(done[panel], pass.blocks.start, "panel {panel} of {panels:?}");
                    done[panel] = pass.blocks.end;
                }
            }
            // The sums of a pair of panels wait at one place, which no other of its group has.
            places.sort_unstable();
            places.dedup();
            assert_eq!(places.len(), panels.len().div_ceil(PRODUCT_PANELS));
            for group in places.chunks(SLICED_PANELS / PRODUCT_PANELS).filter(|_| blocks > SLICE_BLOCKS) {
                assert!(group.iter().enumerate().all(|(i, place)| place.1 == i), "{group:?}");
            }
            assert!((0..panels.end).all(|panel| done[panel] == if panels.contains(&panel) { blocks } else { 0 }));
        }
    }
}
