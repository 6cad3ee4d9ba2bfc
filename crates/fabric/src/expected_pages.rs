//! The pages of one hand-off, and what of it has arrived and was verified.

use std::ops::Range;

use baton_core::{PAGE_TOKENS, PageId};

/// Pages set aside for one hand-off.
///
/// ```text
///   page of the sequence   0 … first_index … first_index + pages.len()
///                          | cached here   | expected from the sender |
/// ```
pub(crate) struct ExpectedPages {
    /// Positions of the sequence that are expected.
    tokens: Range<u32>,
    first_index: u32,
    pub(crate) pages: Vec<PageId>,
    layers: u32,
    /// `[page][layer]`
    landed: Vec<bool>,
    landed_layers: Vec<u32>,
}

impl ExpectedPages {
    pub(crate) fn new(tokens: Range<u32>, pages: Vec<PageId>, layers: u32) -> Self {
        let (first_index, count) = (tokens.start / PAGE_TOKENS as u32, pages.len());
        let (landed, landed_layers) = (vec![false; count * layers as usize], vec![0; count]);
        Self { tokens, first_index, pages, layers, landed, landed_layers }
    }

    /// Where page `index` of the sequence goes; `None` for pages that are cached here already or lie past the end.
    pub(crate) fn slot(&self, index: u32) -> Option<usize> {
        let slot = index.checked_sub(self.first_index)? as usize;
        (slot < self.pages.len()).then_some(slot)
    }

    pub(crate) fn mark(&mut self, slot: usize, layer: u32) {
        let cell = &mut self.landed[slot * self.layers as usize + layer as usize];
        if !std::mem::replace(cell, true) {
            self.landed_layers[slot] += 1;
        }
    }

    /// Before a page is written once more: should that break off or bring wrong bytes, an earlier good copy is gone.
    pub(crate) fn unmark(&mut self, slot: usize, layer: u32) {
        let cell = &mut self.landed[slot * self.layers as usize + layer as usize];
        if std::mem::replace(cell, false) {
            self.landed_layers[slot] -= 1;
        }
    }

    /// Pages from the first on of which every layer was verified.
    pub(crate) fn verified_pages(&self) -> u32 {
        self.landed_layers.iter().take_while(|layers| **layers == self.layers).count() as u32
    }

    /// Tokens, counted from the sequence's start, whose KV is valid here.
    pub(crate) fn verified_tokens(&self) -> u32 {
        (self.tokens.start + self.verified_pages() * PAGE_TOKENS as u32).min(self.tokens.end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_pages_from_the_first_count() {
        let mut expected_pages = ExpectedPages::new(64..150, vec![PageId(7), PageId(8), PageId(9)], 2);
        assert_eq!(
            (expected_pages.slot(1), expected_pages.slot(2), expected_pages.slot(4), expected_pages.slot(5)),
            (None, Some(0), Some(2), None)
        );
        for (slot, layer, verified) in [(1, 0, 0), (1, 1, 0), (0, 0, 0), (0, 0, 0), (0, 1, 2), (2, 1, 2), (2, 0, 3)] {
            expected_pages.mark(slot, layer);
            assert_eq!(expected_pages.verified_pages(), verified, "after page {slot} layer {layer}");
        }
        expected_pages.unmark(1, 0);
        assert_eq!(expected_pages.verified_pages(), 1);
    }

    #[test]
    fn tokens_never_pass_the_end() {
        for (tokens, verified) in [(0..40, [0, 32, 40]), (64..100, [64, 96, 100]), (64..128, [64, 96, 128])] {
            let mut expected_pages = ExpectedPages::new(tokens, vec![PageId(0), PageId(1)], 1);
            let mut counts = vec![expected_pages.verified_tokens()];
            for slot in 0..2 {
                expected_pages.mark(slot, 0);
                counts.push(expected_pages.verified_tokens());
            }
            assert_eq!(counts, verified);
        }
    }
}
