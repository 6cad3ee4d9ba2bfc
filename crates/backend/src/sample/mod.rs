//! Choosing a token. Logits arrive from the output head; a token leaves, with log-probabilities if requested.
//!
//! The choice is a pure function of logits, [`SamplerSpec`](crate::SamplerSpec) and the tokens so far: nothing here knows
//! what else is in the batch. All sums have one order, and no function of the system's mathematics library takes part in
//! the choice, so equal logits give equal tokens on every machine.
//!
//! ```text
//!   logits ─▶ state ─▶ adjust (bias, penalties, min_tokens), mask ─▶ ranking ─▶ draw (min_p, top_k, top_p, random) ─▶ token
//!        └──▶ logprobs, of the logits as they came
//! ```

mod adjust;
mod draw;
mod logprobs;
mod random;
mod ranking;
mod softmax;
mod state;
mod wide;

pub use logprobs::token_logprobs;
pub use state::SamplerState;

/// Buffers that one thread reuses from token to token.
#[derive(Debug, Default)]
pub struct SampleScratch {
    ranked: Vec<u64>,
    cumulative: Vec<f64>,
    raw: Vec<f32>,
}
