//! One choice of one request on its way through the engine.

use std::time::Duration;

use baton_backend::SlotId;
use baton_core::{Choice, RequestId, ReservationId, TokenId};
use baton_kv::{PageTable, Reservation};
use baton_protocol::SessionId;

/// Request ids are unique within one session only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct RequestKey {
    pub(crate) session: SessionId,
    pub(crate) request: RequestId,
}

/// In the order of arrival: of two sequences the one with the larger id is the younger.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct SequenceId(pub(crate) u64);

pub(crate) struct Sequence {
    pub(crate) request: RequestKey,
    pub(crate) choice: Choice,
    /// Prompt, then outputs.
    pub(crate) tokens: Vec<TokenId>,
    pub(crate) stage: Stage,
}

/// ```text
///   AwaitingPrompt ─▶ Waiting ────┬─▶ Prefilling ─▶ Decoding ─▶ (end)
///         Landing ─▶ Received ────┘    │  ▲  │         │
///                                      │  │  ▼         ▼
///                        Delivering ◀──┘  Preempted ◀──┘
/// ```
pub(crate) enum Stage {
    /// Another choice of the request computes the prompt first, to share it.
    AwaitingPrompt,
    /// Has nothing yet.
    Waiting,
    /// The prompt's KV is on its way from another engine. Given up when nothing has arrived until `expires`.
    Landing { from: ReservationId, pages: Reservation, since: Duration, expires: Duration },
    /// It has arrived up to `computed`; the sequence waits like any other, but brings pages along.
    Received { pages: Reservation, computed: usize },
    /// Tokens `[computed, tokens.len())` are to be computed before one can be sampled; all of them have pages.
    Prefilling { slot: SlotId, pages: PageTable, computed: usize },
    /// All tokens but the newest are computed.
    Decoding { slot: SlotId, pages: PageTable },
    /// Has lost its pages but keeps its sampler state.
    Preempted { slot: SlotId },
    /// Computed for another engine, which has not confirmed all of it.
    Delivering { pages: PageTable },
}

impl Sequence {
    pub(crate) fn pages(&self) -> Option<&PageTable> {
        match &self.stage {
            Stage::Prefilling { pages, .. } | Stage::Decoding { pages, .. } | Stage::Delivering { pages } => {
                Some(pages)
            }
            Stage::AwaitingPrompt
            | Stage::Waiting
            | Stage::Landing { .. }
            | Stage::Received { .. }
            | Stage::Preempted { .. } => None,
        }
    }

    pub(crate) fn reservation(&self) -> Option<&Reservation> {
        match &self.stage {
            Stage::Landing { pages, .. } | Stage::Received { pages, .. } => Some(pages),
            _ => None,
        }
    }

    pub(crate) fn is_landing(&self) -> bool {
        matches!(self.stage, Stage::Landing { .. })
    }

    /// Tokens whose KV is in its pages.
    pub(crate) fn computed(&self) -> usize {
        match self.stage {
            Stage::Prefilling { computed, .. } | Stage::Received { computed, .. } => computed,
            Stage::Decoding { .. } => self.tokens.len() - 1,
            Stage::Delivering { .. } => self.tokens.len(),
            Stage::AwaitingPrompt | Stage::Waiting | Stage::Landing { .. } | Stage::Preempted { .. } => 0,
        }
    }
}
