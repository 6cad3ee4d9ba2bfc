//! Where one hand-off is: what of its chunks has been offered. However far a receiver falls behind, it takes no more memory than
//! the page ids of its prompt.
//!
//! ```text
//!              chunk 0   chunk 1          chunk 2
//!   layer 0    offered   offered          being computed
//!   layer 1    offered   ◀ cursor
//!   layer 2    offered   being computed
//! ```

use std::collections::VecDeque;
use std::time::Instant;

use baton_core::{PageId, PromptTimes};

use crate::fence::FenceMark;
use crate::wire::{MAX_OFFER_PAGES, ReservationKey};

/// Consecutive pages of a sequence that become final together.
#[derive(Clone, Debug)]
pub struct Chunk {
    pub first_index: u32,
    pub pages: Vec<PageId>,
    pub computed: Computed,
    /// No chunk follows.
    pub last: bool,
}

/// When the layers of a chunk are final.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Computed {
    Already,
    /// Layer `l` is once the backend has done more than `before + l` layers.
    AfterLayers {
        before: u64,
    },
}

impl Computed {
    fn includes(self, layer: u32, layers_done: u64) -> bool {
        match self {
            Self::Already => true,
            Self::AfterLayers { before } => layers_done > before + u64::from(layer),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delivered {
    /// From the target's `begin` on.
    pub verified_pages: u32,
    /// Bytes changed after they were summed: what lies in the sender's memory is not to be trusted either.
    pub damaged: bool,
}

/// What became of a hand-off, or why there is no answer.
pub type Outcome = Result<Delivered, String>;
pub(crate) type OnOutcome = Box<dyn FnOnce(Outcome) + Send>;

/// One layer of some pages, final and yet to be summed.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) reservation: ReservationKey,
    pub(crate) fence: FenceMark,
    pub(crate) layer: u32,
    pub(crate) first_index: u32,
    pub(crate) pages: Vec<PageId>,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Next {
    Offer(Piece),
    Finish {
        reservation: ReservationKey,
        times: PromptTimes,
    },
    /// What comes next is not final yet.
    Computing,
    Nothing,
}

/// One hand-off that was begun.
pub(crate) struct Cursor {
    /// Distinguishes this export from another one to the same reservation.
    pub(crate) export: u64,
    fence: FenceMark,
    chunks: VecDeque<Chunk>,
    /// Where in the first of `chunks`.
    layer: u32,
    page: usize,
    finish: Option<PromptTimes>,
    /// When the last chunk is final; `None` until it is known.
    all_computed: Option<Computed>,
    /// Some of it arrived damaged.
    damaged: bool,
    pub(crate) last_taken: Instant,
    pub(crate) on_outcome: OnOutcome,
}

impl Cursor {
    pub(crate) fn new(export: u64, fence: FenceMark, now: Instant, on_outcome: OnOutcome) -> Self {
        Self {
            export,
            fence,
            chunks: VecDeque::new(),
            layer: 0,
            page: 0,
            finish: None,
            all_computed: None,
            damaged: false,
            last_taken: now,
            on_outcome,
        }
    }

    pub(crate) fn push(&mut self, chunk: Chunk) {
        if chunk.last {
            self.all_computed = Some(chunk.computed);
        }
        if !chunk.pages.is_empty() {
            self.chunks.push_back(chunk);
        }
    }

    pub(crate) fn finish(&mut self, times: PromptTimes) {
        self.finish = Some(times);
    }

    pub(crate) fn turn(&self, layers_done: u64) -> Turn {
        match self.chunks.front() {
            Some(chunk) if chunk.computed.includes(self.layer, layers_done) => Turn::Ready,
            Some(_) => Turn::Computing,
            None if self.finish.is_some() => Turn::Ready,
            None => Turn::Nothing,
        }
    }

    pub(crate) fn take(&mut self, reservation: ReservationKey, layers: u32) -> Next {
        let Some(chunk) = self.chunks.front() else {
            return self.finish.take().map_or(Next::Nothing, |times| Next::Finish { reservation, times });
        };
        let end = chunk.pages.len().min(self.page + MAX_OFFER_PAGES);
        let piece = Piece {
            reservation,
            fence: self.fence,
            layer: self.layer,
            first_index: chunk.first_index + self.page as u32,
            pages: chunk.pages[self.page..end].to_vec(),
        };
        self.page = end;
        if end == chunk.pages.len() {
            (self.layer, self.page) = (self.layer + 1, 0);
        }
        if self.layer == layers {
            self.chunks.pop_front();
            self.layer = 0;
        }
        Next::Offer(piece)
    }

    pub(crate) fn taken(&mut self, damaged: bool, now: Instant) {
        self.damaged |= damaged;
        self.last_taken = now;
    }

    pub(crate) fn delivered(self, verified_pages: u32) -> (OnOutcome, Delivered) {
        (self.on_outcome, Delivered { verified_pages, damaged: self.damaged })
    }

    pub(crate) fn is_computed(&self, last_layer: u32, layers_done: u64) -> bool {
        self.all_computed.is_some_and(|computed| computed.includes(last_layer, layers_done))
    }
}

pub(crate) enum Turn {
    Ready,
    Computing,
    Nothing,
}
