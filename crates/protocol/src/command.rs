//! A router's commands to an engine, and what an engine's step replies. The native session and the compatible HTTP
//! face both speak in these.

use std::sync::Arc;

use baton_core::{
    AdapterId, Attempt, CacheUpdate, Choice, EngineEvent, EngineReport, GenerateRequest, RequestId, ReservationId,
    TokenId, TokenRange,
};
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Command {
    PrepRecv(Box<PrepRecv>),
    RemoteSend(Box<RemoteSend>),
    /// With a reservation that was made for it the prompt is the reservation's, and may be empty here. The reservation is
    /// used up, also when the request is refused. If its KV is still on the way the request waits for it.
    Generate {
        request: Box<GenerateRequest>,
        reservation: Option<ReservationId>,
    },
    /// Nothing more will come for this reservation: its pages are given back or, when a request waits for it, that request
    /// starts with what has arrived. Unknown ones are ignored.
    Release(ReservationId),
    /// Ends the session's request or reservation with this id. Unknown and ended requests are ignored:
    /// an abort may cross the end on its way.
    Abort(RequestId),
    /// Nothing more is wanted of this choice; the others go on. Ignored like an abort that comes too late.
    AbortChoice {
        request: RequestId,
        choice: Choice,
    },
    /// From now on replies carry what the prefix cache holds, beginning with all of it.
    FollowCache,
}

/// Make room for the KV of `prompt[..end]`. Answered by `Reserved`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PrepRecv {
    pub request: RequestId,
    pub attempt: Attempt,
    pub prompt: Arc<[TokenId]>,
    pub adapter: Option<AdapterId>,
    /// At most the prompt's length, which fills the receiver's prefix cache only.
    pub end: u32,
    /// For callers without a session: the reservation dies when nothing has arrived for this long.
    pub lease_ms: Option<u32>,
}

/// Compute the KV of `prompt[..range.end]` and hand `range` of it to `target`. Answered by `Sent`, when the receiver has
/// verified it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RemoteSend {
    pub request: RequestId,
    pub attempt: Attempt,
    pub prompt: Arc<[TokenId]>,
    pub adapter: Option<AdapterId>,
    pub range: TokenRange,
    /// As it stood in `Reserved`.
    pub target: Vec<u8>,
}

impl Command {
    /// The request that ends when this command is refused.
    pub fn opens(&self) -> Option<(RequestId, Attempt)> {
        match self {
            Self::PrepRecv(call) => Some((call.request, call.attempt)),
            Self::RemoteSend(call) => Some((call.request, call.attempt)),
            Self::Generate { request, .. } => Some((request.id, request.attempt)),
            Self::Release(_) | Self::Abort(_) | Self::AbortChoice { .. } | Self::FollowCache => None,
        }
    }
}

/// Everything one engine step sends to one session; what the prefix cache holds may take several replies.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StepReply {
    pub report: EngineReport,
    pub events: Vec<EngineEvent>,
    /// For a session that follows the cache, also when nothing has changed: so an update that was lost is noticed by the
    /// next reply. Numbers are the session's own, from 0 on.
    pub cache: Option<CacheUpdate>,
}
