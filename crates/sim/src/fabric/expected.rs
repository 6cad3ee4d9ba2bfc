//! KV that a receiver expects for a reservation, with the pages that have arrived and were verified.

use std::time::Duration;

use baton_core::{PAGE_TOKENS, PageId, TokenId};

use crate::model::LAYERS;

pub(super) struct ExpectedKv {
    pub(super) prompt: Vec<TokenId>,
    /// `pages` hold positions `[begin, prompt.len())`.
    pub(super) begin: usize,
    pub(super) pages: Vec<PageId>,
    pub(super) landed: Vec<[bool; LAYERS as usize]>,
    pub(super) last_arrival: Duration,
    /// Ends with the copy that is in progress; none begins any more.
    pub(super) revoked: bool,
}

impl ExpectedKv {
    /// Where page `index` of the sequence goes; `None` for pages that are cached here already or lie past the end.
    pub(super) fn slot(&self, index: usize) -> Option<usize> {
        index.checked_sub(self.begin / PAGE_TOKENS).filter(|slot| *slot < self.pages.len())
    }

    /// From the sequence's start.
    pub(super) fn verified_tokens(&self) -> usize {
        let pages = self.landed.iter().take_while(|layers| layers.iter().all(|good| *good)).count();
        (self.begin + pages * PAGE_TOKENS).min(self.prompt.len())
    }

    /// Positions of the sequence that a slot holds.
    pub(super) fn span(&self, slot: usize) -> (usize, usize) {
        let begin = self.begin + slot * PAGE_TOKENS;
        (begin, (begin + PAGE_TOKENS).min(self.prompt.len()))
    }
}
