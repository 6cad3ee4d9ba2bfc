//! One choice of one request on its way through the engine.

use std::time::Duration;

use baton_backend::SlotId;
use baton_core::{Choice, RequestId, ReservationId, TokenId};
use baton_kv::{PageReservation, PageTable, ReceivedPages};
use baton_protocol::SessionId;

use crate::masks::MaskSource;

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
    /// Of the tokens that may follow, where not all may.
    pub(crate) masks: Option<Box<dyn MaskSource>>,
    pub(crate) stage: Stage,
}

/// ```text
///   AwaitingPrompt ─▶ Waiting ────┬─▶ Running ─▶ (end)
///   Landing ─▶ Revoking ─▶ Received ┘ │ ▲  │
///                                     │ │  ▼
///                       Delivering ◀──┘ Preempted
/// ```
pub(crate) enum Stage {
    /// Another choice of the request computes the prompt first, to share it.
    AwaitingPrompt,
    /// Has nothing yet.
    Waiting,
    /// The prompt's KV is on its way from another engine. Given up when nothing has arrived until `expires`.
    Landing {
        pages: PageReservation,
        since: Duration,
        expires: Duration,
    },
    /// No more is wanted of it, but the fabric may still write its pages, for positions `[0, end)`, until the fabric reports
    /// otherwise.
    Revoking {
        from: ReservationId,
        end: usize,
    },
    /// It has arrived up to `computed`; the sequence waits like any other, but brings pages along.
    Received {
        pages: ReceivedPages,
        computed: usize,
    },
    Running(Run),
    /// Has lost its pages but keeps its sampler state.
    Preempted {
        slot: SlotId,
    },
    /// Computed for another engine, which has not confirmed all of it.
    Delivering {
        pages: PageTable,
    },
}

/// What a sequence has while it runs. What is planned is ahead of what is known by the steps in flight:
///
/// ```text
///   0 ........... computed .......... scheduled .......... tokens.len() + sampling
///   | KV is final | in steps in flight | next to be planned |
/// ```
/// The last `sampling` of these tokens are still to be chosen, each by a step in flight. A step that may choose several
/// counts as one, and none is planned behind it.
pub(crate) struct Run {
    pub(crate) slot: SlotId,
    /// For all tokens that are planned.
    pub(crate) pages: PageTable,
    pub(crate) computed: usize,
    pub(crate) scheduled: usize,
    pub(crate) sampling: usize,
    pub(crate) phase: Phase,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Tokens are missing in front of the first that is sampled.
    Prefilling,
    /// A step samples it, or has: every later one computes the token before.
    Decoding,
}

impl Run {
    /// No step has begun with it.
    pub(crate) fn new(slot: SlotId, pages: PageTable, computed: usize) -> Self {
        Self { slot, pages, computed, scheduled: computed, sampling: 0, phase: Phase::Prefilling }
    }
}

impl Sequence {
    pub(crate) fn pages(&self) -> Option<&PageTable> {
        match &self.stage {
            Stage::Running(Run { pages, .. }) | Stage::Delivering { pages } => Some(pages),
            Stage::AwaitingPrompt
            | Stage::Waiting
            | Stage::Landing { .. }
            | Stage::Revoking { .. }
            | Stage::Received { .. }
            | Stage::Preempted { .. } => None,
        }
    }

    pub(crate) fn received(&self) -> Option<&ReceivedPages> {
        match &self.stage {
            Stage::Received { pages, .. } => Some(pages),
            _ => None,
        }
    }

    pub(crate) fn is_in(&self, wanted: Phase) -> bool {
        matches!(self.stage, Stage::Running(Run { phase, .. }) if phase == wanted)
    }

    /// Tokens whose KV is in its pages, all of it by steps that have ended.
    pub(crate) fn computed(&self) -> usize {
        match self.stage {
            Stage::Running(Run { computed, .. }) | Stage::Received { computed, .. } => computed,
            Stage::Delivering { .. } => self.tokens.len(),
            Stage::AwaitingPrompt
            | Stage::Waiting
            | Stage::Landing { .. }
            | Stage::Revoking { .. }
            | Stage::Preempted { .. } => 0,
        }
    }
}
