//! What an engine is to do: token ids in, with every default already decided.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::{AdapterId, AffinityKey, Attempt, Choice, RequestId, TokenId};

/// One request for `choices` continuations of one prompt. Everything a client may leave out has been filled in
/// before, so that two engines that receive it do the same.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GenerateRequest {
    pub id: RequestId,
    pub attempt: Attempt,
    /// Never empty.
    pub prompt: Arc<[TokenId]>,
    /// Tokens of each choice that the router has accepted already: generation continues after them, as if it had never
    /// stopped. One entry per choice.
    pub outputs: Vec<Vec<TokenId>>,
    /// Choices that have ended already (in an earlier attempt): nothing is generated for them. One entry per choice.
    pub ended: Vec<bool>,
    pub sampling: SamplingParams,
    pub limits: Limits,
    /// Report the log-probability of each generated token, and this many alternatives.
    pub logprobs: Option<u32>,
    /// Report the same for each prompt token but the first. Such a request takes nothing from the prefix cache.
    pub prompt_logprobs: Option<u32>,
    /// KV and tokens are those of the model with this adapter; `None` for the model alone.
    pub adapter: Option<AdapterId>,
    /// The prompt's event brings its hidden states, pooled. Nothing is generated: `max_tokens` is 0.
    pub pooling: Option<Pooling>,
    /// The router's business: engines do not get it.
    #[serde(skip)]
    pub affinity: Option<AffinityKey>,
}

impl GenerateRequest {
    pub fn choices(&self) -> impl Iterator<Item = Choice> + use<> {
        (0..self.outputs.len() as u32).map(Choice)
    }

    /// Choices for which there is something to generate. A request without any (`max_tokens` 0, or all ended before) ends
    /// with its prompt's event.
    pub fn unfinished_choices(&self) -> impl Iterator<Item = Choice> {
        self.choices().zip(&self.ended).zip(&self.outputs).filter_map(|((choice, &ended), outputs)| {
            (!ended && outputs.len() < self.limits.max_tokens as usize).then_some(choice)
        })
    }

    /// The prompt is computed as a whole by the engine that generates: nothing is taken from a prefix cache or another engine.
    pub fn needs_whole_prompt(&self) -> bool {
        self.prompt_logprobs.is_some() || self.pooling == Some(Pooling::Mean)
    }

    /// The longest this request's sequences can become, in tokens.
    pub fn max_total_tokens(&self) -> usize {
        self.prompt.len() + self.limits.max_tokens as usize
    }
}

/// What one vector is made of the hidden states of a prompt, as they are after the final norm.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Pooling {
    /// The last token's.
    Last,
    /// The mean of all. Such a request takes nothing from the prefix cache.
    Mean,
}

/// How the next token is chosen. Order of application: logit bias, repetition, presence and frequency penalties,
/// temperature, min_p, top_k, top_p.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SamplingParams {
    /// 0 takes the most likely token; ties go to the lowest id.
    pub temperature: f32,
    /// 1 keeps all.
    pub top_p: f32,
    /// `None` keeps all.
    pub top_k: Option<u32>,
    /// 0 keeps all.
    pub min_p: f32,
    pub presence_penalty: f32,
    pub frequency_penalty: f32,
    /// 1 changes nothing. Looks at prompt and output, as in Hugging Face transformers; the other two at the output only.
    pub repetition_penalty: f32,
    /// Ascending by id, each id once.
    pub logit_bias: Vec<(TokenId, f32)>,
    /// The token at a position is a pure function of logits, these parameters and (seed, choice, position).
    pub seed: u64,
}

impl SamplingParams {
    pub fn greedy() -> Self {
        Self {
            temperature: 0.0,
            top_p: 1.0,
            top_k: None,
            min_p: 0.0,
            presence_penalty: 0.0,
            frequency_penalty: 0.0,
            repetition_penalty: 1.0,
            logit_bias: Vec::new(),
            seed: 0,
        }
    }
}

/// When a choice ends.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Limits {
    /// Generated tokens per choice, those in `outputs` included.
    pub max_tokens: u32,
    /// Until that many tokens exist the stop tokens cannot be sampled.
    pub min_tokens: u32,
    /// Tokens that end a choice: the model's end-of-sequence tokens (unless the client ignores them) and the client's own.
    pub stop_tokens: Vec<TokenId>,
}
