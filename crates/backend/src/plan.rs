//! What a step is to do. A plan names pages and slots, never bytes; its buffers are reused from step to step.

use std::ops::Range;
use std::sync::Arc;

use baton_core::{AdapterId, Choice, PageId, Pooling, SamplingParams, TokenId};

use crate::mask::MaskCell;

/// Sampler state of one sequence inside the backend: it outlives preemption, since it needs no pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SlotId(pub u32);

/// One step over any mixture of prefill chunks and decoding sequences.
#[derive(Clone, Debug, Default)]
pub struct StepPlan {
    /// Slots that exist from this step on, with empty page tables. Applied first.
    pub admitted: Vec<(SlotId, Arc<SamplerSpec>)>,
    /// What is new in the slots' page tables. Applied before any segment is computed.
    pub tables: Vec<TableChange>,
    /// Pages of all changes, one after the other.
    pub pages: Vec<PageId>,
    pub segments: Vec<Segment>,
    /// Inputs of all segments, one after the other.
    pub tokens: Vec<InputToken>,
    /// Slots that end with this step. Applied last.
    pub released: Vec<SlotId>,
}

/// A slot's page table keeps its first pages, and these come behind them. Until it is changed again, or its slot released,
/// every later step reads it as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableChange {
    pub slot: SlotId,
    /// Pages that stay, not more than there are; 0 resets the table, as for a sequence that lost its pages.
    pub first: usize,
    /// Into [`StepPlan::pages`].
    pub pages: Range<usize>,
}

impl StepPlan {
    /// Behind its first `first` pages the slot's table gets these.
    pub fn change_table(&mut self, slot: SlotId, first: usize, pages: impl IntoIterator<Item = PageId>) {
        let begin = self.pages.len();
        self.pages.extend(pages);
        self.tables.push(TableChange { slot, first, pages: begin..self.pages.len() });
    }
}

/// Consecutive tokens of one sequence, which has no other segment in the step. The page table of its slot has pages for all
/// positions up to its end: one for each of 0, 32, 64, …
///
/// ```text
///   0 ............ first_position ............ first_position + tokens.len()
///   | KV in pages  | computed by this segment  |
/// ```
#[derive(Clone, Debug)]
pub struct Segment {
    pub slot: SlotId,
    /// Into [`StepPlan::tokens`]; never empty.
    pub tokens: Range<usize>,
    pub first_position: usize,
    /// The same in every segment of a sequence; one of [`BackendSpec::adapters`](crate::BackendSpec::adapters).
    pub adapter: Option<AdapterId>,
    pub output: SegmentOutput,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InputToken {
    Known(TokenId),
    /// The token that the slot's latest sampling chose, or will choose in a step that is still running.
    LastSampled,
}

#[derive(Clone, Debug, Default)]
pub struct SegmentOutput {
    /// Sample from the last position: at least one token, and no more than this. 0 samples none. KV of sampled tokens with
    /// another behind them is computed with the segment, and the slot's page table has pages for it.
    pub samples: usize,
    /// Sampling waits until it is filled, [`MASK_PATIENCE`](crate::MASK_PATIENCE) at most. Is of one token: `samples` is 1.
    pub mask: Option<MaskCell>,
    /// Set in all segments of a prompt or in none; they come in order from position 0, unless only the last token counts. The
    /// result leaves with the segment that ends the prompt.
    pub pooling: Option<Pooling>,
    /// For each position of the segment: the log-probability of the token after it (known from the slot's prompt; the
    /// prompt's last position has none) and this many alternatives.
    pub prompt_logprobs: Option<u32>,
}

/// All that choosing a token depends on besides the logits.
#[derive(Clone, Debug, PartialEq)]
pub struct SamplerSpec {
    pub params: SamplingParams,
    pub choice: Choice,
    pub prompt: Arc<[TokenId]>,
    /// Generated before this slot existed (a resumed request).
    pub outputs: Vec<TokenId>,
    pub min_tokens: u32,
    /// Cannot be sampled before `min_tokens` outputs exist.
    pub stop_tokens: Vec<TokenId>,
    pub logprobs: Option<u32>,
}
