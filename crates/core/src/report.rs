//! What engines tell about themselves: once who they are, then with every reply how they are.

use serde::{Deserialize, Serialize};

/// Who an engine is. Sent once, when a session opens.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EngineInfo {
    pub model: String,
    /// Engines with equal ids give bit-equal logits for equal tokens: weights hash, kernel set, dtypes, reduction plan.
    pub numerics_id: String,
    pub vocab_size: u32,
    /// Longest sequence, prompt and output together.
    pub max_context_tokens: u32,
    pub pages_total: u32,
    pub threads: u32,
    pub prefix_cache: bool,
}

/// How an engine is doing, attached to every frame it sends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EngineReport {
    /// Grows with every report of one engine process: a router keeps the newest.
    pub sequence: u64,
    pub load: EngineLoad,
    pub counters: EngineCounters,
}

/// Gauges.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EngineLoad {
    /// Sequences that hold pages.
    pub running: u32,
    /// Sequences that wait for pages, preempted ones included.
    pub waiting: u32,
    /// Prompt tokens still to be computed for all of them.
    pub pending_prefill_tokens: u64,
    pub pages_total: u32,
    /// Neither held by a sequence nor cached.
    pub pages_free: u32,
    /// Held by the prefix cache alone: given up when needed.
    pub pages_cached: u32,
}

/// Totals since the engine process started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EngineCounters {
    pub steps: u64,
    /// Prompt tokens computed (re-computed ones after a preemption included).
    pub prefill_tokens: u64,
    /// Prompt tokens taken from the prefix cache instead.
    pub cached_tokens: u64,
    pub generated_tokens: u64,
    pub preemptions: u64,
    pub evicted_pages: u64,
    pub aborted: u64,
    pub finished: u64,
    /// Time spent inside steps.
    pub busy_us: u64,
}
