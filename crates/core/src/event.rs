//! What an engine answers: one event per token, and one that ends each choice.

use serde::{Deserialize, Serialize};

use crate::{Attempt, Choice, RequestId, ServeError, TokenId};

/// What an engine says about one request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum EngineEvent {
    /// The prompt is computed; comes once per attempt, before its first token. With nothing to generate (`max_tokens` 0)
    /// the request ends with it.
    Prompt(PromptEvent),
    Token(TokenEvent),
    /// The whole request has ended here; nothing follows.
    Failed(FailedEvent),
}

impl EngineEvent {
    pub fn request(&self) -> RequestId {
        match self {
            Self::Prompt(event) => event.request,
            Self::Token(event) => event.request,
            Self::Failed(event) => event.request,
        }
    }

    pub fn attempt(&self) -> Attempt {
        match self {
            Self::Prompt(event) => event.attempt,
            Self::Token(event) => event.attempt,
            Self::Failed(event) => event.attempt,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PromptEvent {
    pub request: RequestId,
    pub attempt: Attempt,
    /// Prompt tokens that came from the prefix cache.
    pub cached_tokens: u32,
    /// Of prompt positions 1, 2, …, when asked for: position 0 has no distribution before it.
    pub logprobs: Option<Vec<TokenLogprobs>>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FailedEvent {
    pub request: RequestId,
    pub attempt: Attempt,
    pub error: ServeError,
}

/// One generated token of one choice. Events of a choice arrive with `index` ascending without a gap; the event that has
/// `finish` set is its last.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TokenEvent {
    pub request: RequestId,
    pub attempt: Attempt,
    pub choice: Choice,
    /// Position among the choice's generated tokens, from 0.
    pub index: u32,
    pub token: TokenId,
    pub logprobs: Option<TokenLogprobs>,
    pub finish: Option<FinishReason>,
}

/// Log-probabilities (natural, of the model's own distribution before any sampling parameter) at one position.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TokenLogprobs {
    /// Of the token that stands at this position.
    pub chosen: f32,
    /// The most likely tokens, best first; as many as were asked for.
    pub top: Vec<Candidate>,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Candidate {
    pub token: TokenId,
    pub logprob: f32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FinishReason {
    /// The event's token is one of the stop tokens.
    StopToken,
    /// `max_tokens` or the model's context is used up.
    Length,
}
