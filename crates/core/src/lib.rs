//! The words every other crate speaks: ids, token ranges, requests, events, reports and whose fault an error is.
//!
//! Nothing arrives here and nothing leaves: these are plain types without I/O. A [`GenerateRequest`] is what the gateway
//! makes of an HTTP body and what an engine consumes; [`TokenEvent`]s are what comes back.

mod affinity;
mod cache;
mod error;
mod event;
mod gguf_vocabulary;
mod ids;
mod numerics;
mod program;
mod range;
mod report;
mod request;
mod step_costs;

pub use affinity::AffinityKey;
pub use cache::{BlockHash, CacheEvent, CacheLog, CacheUpdate, cache_snapshot};
pub use error::{Fault, Retry, ServeError};
pub use event::{
    Candidate, EngineEvent, FailedEvent, FinishReason, PromptEvent, PromptTimes, ReservedEvent, SentEvent, TokenEvent,
    TokenLogprobs,
};
pub use gguf_vocabulary::{GgufVocabulary, TokenType, VocabularyKind};
pub use ids::{AdapterId, Attempt, Choice, PageId, RequestId, ReservationId, TokenId};
pub use numerics::{Guarantee, Numerics};
pub use program::Program;
pub use range::TokenRange;
pub use report::{EngineCounters, EngineInfo, EngineLoad, EngineReport, SessionLoad, ShardCounters};
pub use request::{GenerateRequest, Limits, Pooling, SamplingParams};
pub use step_costs::{StepCosts, StepWork};

/// Tokens in one KV page, on every backend: prefix matches, hand-offs and hashes are all in whole pages of this size.
pub const PAGE_TOKENS: usize = 32;
