//! One choice of one request on its way through the engine.

use baton_compute::SlotId;
use baton_core::{Choice, RequestId, TokenId};
use baton_kv::PageTable;
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
///   AwaitingPrompt ─▶ Waiting ─▶ Prefilling ─▶ Decoding ─▶ (end)
///                                    ▲  │         │
///                                    │  ▼         ▼
///                                    Preempted ◀──┘
/// ```
pub(crate) enum Stage {
    /// Another choice of the request computes the prompt first, to share it.
    AwaitingPrompt,
    /// Has nothing yet.
    Waiting,
    /// Tokens `[computed, tokens.len())` are to be computed before one can be sampled; all of them have pages.
    Prefilling { slot: SlotId, pages: PageTable, computed: usize },
    /// All tokens but the newest are computed.
    Decoding { slot: SlotId, pages: PageTable },
    /// Has lost its pages but keeps its sampler state.
    Preempted { slot: SlotId },
}

impl Sequence {
    pub(crate) fn pages(&self) -> Option<&PageTable> {
        match &self.stage {
            Stage::Prefilling { pages, .. } | Stage::Decoding { pages, .. } => Some(pages),
            Stage::AwaitingPrompt | Stage::Waiting | Stage::Preempted { .. } => None,
        }
    }

    /// Tokens whose KV is in its pages.
    pub(crate) fn computed(&self) -> usize {
        match self.stage {
            Stage::Prefilling { computed, .. } => computed,
            Stage::Decoding { .. } => self.tokens.len() - 1,
            Stage::AwaitingPrompt | Stage::Waiting | Stage::Preempted { .. } => 0,
        }
    }
}
