//! What engines report of themselves: once what they are, then with every reply how they are.

use serde::{Deserialize, Serialize};

use crate::StepCosts;

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
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EngineReport {
    /// Grows with every report of one engine process: a router keeps the newest.
    pub sequence: u64,
    pub load: EngineLoad,
    /// Of that load, the part of the session that gets this report.
    pub own: SessionLoad,
    pub counters: EngineCounters,
    pub costs: StepCosts,
    /// One per tensor-parallel shard.
    pub shards: Vec<ShardCounters>,
}

/// One session's share of an engine's load.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionLoad {
    /// Running or waiting.
    pub sequences: u32,
    pub pending_prefill_tokens: u64,
}

impl EngineReport {
    /// The part of all other sessions.
    pub fn others(&self) -> SessionLoad {
        let sequences = self.load.running + self.load.waiting;
        SessionLoad {
            sequences: sequences.saturating_sub(self.own.sequences),
            pending_prefill_tokens: self.load.pending_prefill_tokens.saturating_sub(self.own.pending_prefill_tokens),
        }
    }
}

/// Gauges.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EngineLoad {
    /// Sequences that hold pages.
    pub running: u32,
    /// Sequences that wait for pages, preempted ones included, or for KV from another engine.
    pub waiting: u32,
    /// Prompt tokens still to be computed for all of them.
    pub pending_prefill_tokens: u64,
    pub pages_total: u32,
    /// Neither held by a sequence nor cached.
    pub pages_free: u32,
    /// Held by the prefix cache alone: given up when needed.
    pub pages_cached: u32,
    /// Places for KV from other engines that no request uses yet, or whose request waits for it.
    pub reservations: u32,
    /// Pages set aside for them.
    pub reserved_pages: u32,
    /// Prompts being computed for, or handed to, other engines.
    pub exports: u32,
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
    /// The part of it that prompts took, by the engine's own [costs](StepCosts).
    pub prefill_us: u64,
    /// Requests that started from another engine's KV.
    pub handoffs_received: u64,
    /// Prompt tokens they did not have to compute.
    pub received_tokens: u64,
    /// Time those requests waited for it.
    pub landing_us: u64,
    /// Requests that stopped waiting for it and computed the rest.
    pub landing_timeouts: u64,
    /// Reservations that ran out before they were used.
    pub leases_expired: u64,
    /// Prompts whose KV another engine has taken.
    pub handoffs_sent: u64,
    /// Verified whole pages and bytes from other engines.
    pub kv_pages_received: u64,
    pub kv_bytes_received: u64,
    /// Time spent copying and checking them.
    pub kv_copy_us: u64,
    /// Bytes that other engines have verified.
    pub kv_bytes_sent: u64,
    /// Of those: while later layers of the same prompt were still being computed.
    pub kv_bytes_sent_early: u64,
    /// Blocks that arrived damaged.
    pub checksum_failures: u64,
    /// Blocks whose sender had reused them.
    pub stale_blocks: u64,
    /// Offers for reservations that were gone.
    pub unknown_offers: u64,
}

/// Totals of one tensor-parallel shard since the engine process started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShardCounters {
    /// Verified bytes from other engines in its KV memory.
    pub kv_bytes_received: u64,
    /// Bytes of its KV memory that other engines have verified.
    pub kv_bytes_sent: u64,
    /// Activations it computed and the other shards read.
    pub gathered_bytes: u64,
}
