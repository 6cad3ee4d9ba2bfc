//! The pages of one sequence, in the order of its positions.

use baton_core::{AdapterId, PageId};

use crate::dropped::{Dropped, DroppedTable};

/// Numbers the steps of an engine from 1 on. They are submitted in this order, and end in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StepNumber(pub u64);

/// What the KV of a sequence is a function of, besides its tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Origin {
    /// This many tokens of the sequence are its prompt.
    pub prompt_tokens: usize,
    pub adapter: Option<AdapterId>,
}

/// Holds its pages; dropped, it gives them back as soon as no step in flight touches them.
///
/// ```text
///   position   0 .. 32 | 32 .. 64 | 64 .. 96
///   page          7    |    2     |    9
/// ```
#[derive(Debug)]
pub struct PageTable {
    pub(crate) pages: Vec<PageId>,
    pub(crate) origin: Origin,
    /// The last step that reads or writes the pages.
    last_step: StepNumber,
    dropped: Dropped,
}

impl PageTable {
    pub(crate) fn new(origin: Origin, dropped: Dropped) -> Self {
        Self { pages: Vec::new(), origin, last_step: StepNumber::default(), dropped }
    }

    pub fn pages(&self) -> &[PageId] {
        &self.pages
    }

    /// A step touches the pages: until it has ended they go to no other, whatever becomes of the sequence.
    pub fn touched_by(&mut self, step: StepNumber) {
        self.last_step = step;
    }
}

impl Drop for PageTable {
    fn drop(&mut self) {
        let pages = std::mem::take(&mut self.pages);
        if !pages.is_empty() {
            self.dropped.left().tables.push(DroppedTable { last_step: self.last_step, pages });
        }
    }
}
