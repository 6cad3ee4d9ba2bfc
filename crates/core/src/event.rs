//! What an engine answers: to a generation one event per token, of which one ends each choice; to the calls before it one
//! event each.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::{Attempt, Choice, RequestId, ReservationId, ServeError, TokenId};

/// What an engine reports of one request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum EngineEvent {
    /// The prompt is computed; comes once per attempt, before its first token. With nothing to generate (`max_tokens` 0)
    /// the request ends with it.
    Prompt(PromptEvent),
    Token(TokenEvent),
    /// Pages wait for KV: the answer to `prep_recv`.
    Reserved(ReservedEvent),
    /// KV has been handed over: the answer to `remote_send`.
    Sent(SentEvent),
    /// The whole request has ended here; nothing follows.
    Failed(FailedEvent),
}

impl EngineEvent {
    pub fn request(&self) -> RequestId {
        match self {
            Self::Prompt(event) => event.request,
            Self::Token(event) => event.request,
            Self::Reserved(event) => event.request,
            Self::Sent(event) => event.request,
            Self::Failed(event) => event.request,
        }
    }

    pub fn attempt(&self) -> Attempt {
        match self {
            Self::Prompt(event) => event.attempt,
            Self::Token(event) => event.attempt,
            Self::Reserved(event) => event.attempt,
            Self::Sent(event) => event.attempt,
            Self::Failed(event) => event.attempt,
        }
    }
}

/// Where the time went between a prompt's arrival at an engine and the moment when all of it was computed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PromptTimes {
    /// Until its first step.
    pub queue: Duration,
    pub prefill: Duration,
    /// Until its KV had come from another engine.
    pub handoff: Duration,
}

impl PromptTimes {
    /// While a prompt waits for its KV the sender queues and computes: what is left of the wait is the hand-off.
    #[must_use]
    pub fn fed_by(self, sender: Self) -> Self {
        Self {
            queue: self.queue + sender.queue,
            prefill: self.prefill + sender.prefill,
            handoff: self.handoff.saturating_sub(sender.queue + sender.prefill),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PromptEvent {
    pub request: RequestId,
    pub attempt: Attempt,
    /// Prompt tokens that came from the prefix cache.
    pub cached_tokens: u32,
    /// Of prompt positions 1, 2, …, when requested: position 0 has no distribution before it.
    pub logprobs: Option<Vec<TokenLogprobs>>,
    /// When requested.
    pub pooled: Option<Vec<f32>>,
    pub times: PromptTimes,
}

/// ```text
///   prompt   0 ──────── matched ──────────── end ─────── L
///            cached here  │ to be received here │ computed here
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ReservedEvent {
    pub request: RequestId,
    pub attempt: Attempt,
    pub reservation: ReservationId,
    /// Prompt tokens whose KV is here already: whole pages, and no more than `end`.
    pub matched: u32,
    /// Where the rest goes, in the fabric's own words. Only a sending engine looks inside.
    pub target: Vec<u8>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SentEvent {
    pub request: RequestId,
    pub attempt: Attempt,
    /// Tokens of the range that the receiver has verified. Fewer than were sent when blocks arrived damaged or late: the
    /// receiver computes those itself.
    pub verified_tokens: u32,
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
    /// The most likely tokens, best first; as many as were requested.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sender_computes_while_its_receiver_waits() {
        let ms = Duration::from_millis;
        let receiver = PromptTimes { queue: ms(1), prefill: ms(2), handoff: ms(50) };
        let sender = PromptTimes { queue: ms(10), prefill: ms(35), handoff: ms(0) };
        assert_eq!(receiver.fed_by(sender), PromptTimes { queue: ms(11), prefill: ms(37), handoff: ms(5) });
        assert_eq!(receiver.fed_by(PromptTimes::default()), receiver);
    }
}
