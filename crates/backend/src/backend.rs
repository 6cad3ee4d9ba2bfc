//! The seam between the step loop and the hardware.

use std::sync::Arc;

use baton_core::{AdapterId, Numerics, Pooling, ServeError, ShardCounters, TokenId, TokenLogprobs};
use baton_fabric::{KvMemory, LayerCounter};
use thiserror::Error;

use crate::plan::{SlotId, StepPlan};

/// Runs steps. One plan may be submitted while another still runs; results are collected in the order of submission.
pub trait Backend: Send {
    fn spec(&self) -> &BackendSpec;

    /// Starts a step. On a CPU it also finishes it.
    fn submit(&mut self, plan: &StepPlan) -> Result<Ticket, BackendError>;

    /// Waits for a step and writes its results over `output`.
    fn collect(&mut self, ticket: Ticket, output: &mut StepOutput) -> Result<(), BackendError>;

    /// Counts the layers of all steps, as they are done.
    fn layers_done(&self) -> LayerCounter;

    /// Adds what each tensor-parallel shard has done, and shards that are not in the list yet.
    fn count_shards(&self, _shards: &mut Vec<ShardCounters>) {}

    /// The memory behind its pages, for hand-offs to and from other engines. `None` when it cannot be shared.
    fn kv_memory(&self) -> Option<Arc<dyn KvMemory>> {
        None
    }
}

/// What plans must stay within.
#[derive(Clone, Debug)]
pub struct BackendSpec {
    /// What it is, for humans: `cpu avx512`, `mock`.
    pub device: String,
    pub numerics: Numerics,
    pub vocab_size: usize,
    pub max_context_tokens: usize,
    pub pages_total: usize,
    /// Tokens of all segments of a step.
    pub max_step_tokens: usize,
    pub max_slots: usize,
    /// Steps that may be submitted and not yet collected. At least 1.
    pub steps_in_flight: usize,
    /// Tokens that a segment may sample, at most. With more than one a slot has no step planned behind one that samples.
    pub tokens_per_step: usize,
    /// Numbers of decoding sequences that run best, ascending; empty when any number does.
    pub batch_buckets: Vec<usize>,
    /// How hidden states can be pooled. Requests for other ways are refused.
    pub poolings: Vec<Pooling>,
    /// Adapters that segments may name. Requests for others are refused.
    pub adapters: Vec<AdapterId>,
    pub threads: usize,
}

/// A step that was submitted and not yet collected. Not cloneable: each is collected once.
#[derive(Debug, PartialEq, Eq)]
pub struct Ticket(u64);

impl Ticket {
    /// For backends: the number of the step, counted by the one that runs it.
    pub fn new(step: u64) -> Self {
        Self(step)
    }

    pub fn step(&self) -> u64 {
        self.0
    }
}

#[derive(Clone, Debug, Default)]
pub struct StepOutput {
    /// Of each sampling segment, in the plan's order, its tokens in theirs; none of `failed` slots.
    pub samples: Vec<Sample>,
    /// In the plan's order.
    pub prompt_logprobs: Vec<PromptLogprob>,
    /// Of each pooling segment that ends its slot's prompt, in the plan's order; none of `failed` slots.
    pub pooled: Vec<(SlotId, Vec<f32>)>,
    /// Sequences that cannot go on here, sampling or not; others are not affected.
    pub failed: Vec<(SlotId, ServeError)>,
}

impl StepOutput {
    /// Keeps the buffers.
    pub fn clear(&mut self) {
        self.samples.clear();
        self.prompt_logprobs.clear();
        self.pooled.clear();
        self.failed.clear();
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    pub slot: SlotId,
    /// With `Err` the sequence cannot go on; others are not affected.
    pub token: Result<TokenId, CannotSample>,
    pub logprobs: Option<TokenLogprobs>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct PromptLogprob {
    pub slot: SlotId,
    /// The prompt position this is about (never 0).
    pub position: usize,
    pub logprobs: TokenLogprobs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum CannotSample {
    #[error("the model's logits are not finite")]
    NotFinite,
    #[error("no token may follow: all are masked")]
    NothingAllowed,
    #[error("the mask of the tokens that may follow was not made in time")]
    NoMask,
}

/// The step, and with it the engine, cannot go on.
#[derive(Debug, Error)]
pub enum BackendError {
    #[error("plan breaks the backend's contract: {0}")]
    Contract(String),
    #[error("device: {0}")]
    Device(String),
    #[error("cannot load the model: {0}")]
    Load(String),
}
