//! Checks the events of a request: each in its place, and exactly the reference model's tokens.

use baton_core::{Attempt, Choice, EngineEvent, Fault, GenerateRequest, Retry, ServeError};

use crate::model::{Output, Reference};
use crate::stall::StallClock;

pub(crate) struct StreamChecker {
    request: GenerateRequest,
    reference: Reference,
    /// The prompt does not fit the context.
    too_long: bool,
    prompt_seen: bool,
    seen: Vec<usize>,
    /// Tokens per choice after which the client stops it, as the gateway does after a stop string.
    limits: Vec<usize>,
    /// Of the newest event.
    attempt: Attempt,
    stalls: Option<StallClock>,
}

pub(crate) enum Checked {
    More,
    /// The client stops this choice before its end.
    Enough(Choice),
    Failed(ServeError),
}

impl StreamChecker {
    pub(crate) fn new(request: GenerateRequest, context_tokens: usize) -> Self {
        let reference = Reference::of(&request, context_tokens);
        let needed = request.prompt.len() + usize::from(request.limits.max_tokens > 0);
        let choices = request.outputs.len();
        let (seen, limits) = (vec![0; choices], vec![usize::MAX; choices]);
        Self {
            too_long: needed > context_tokens,
            request,
            reference,
            prompt_seen: false,
            seen,
            limits,
            attempt: Attempt(0),
            stalls: None,
        }
    }

    pub(crate) fn stop_after(&mut self, choice: usize, tokens: usize) {
        self.limits[choice] = tokens;
    }

    pub(crate) fn expect_no_stall(&mut self, stalls: StallClock) {
        self.stalls = Some(stalls);
    }

    pub(crate) fn check(&mut self, event: EngineEvent) -> Result<Checked, String> {
        self.stalls.as_mut().map_or(Ok(()), StallClock::moves)?;
        if event.attempt() < self.attempt {
            return Err(format!(
                "an event of attempt {} came after one of attempt {}",
                event.attempt().0,
                self.attempt.0
            ));
        }
        self.attempt = event.attempt();
        match &event {
            EngineEvent::Prompt(prompt) => {
                if std::mem::replace(&mut self.prompt_seen, true) {
                    return Err("the prompt was reported twice".to_owned());
                }
                if prompt.cached_tokens as usize > self.request.prompt.len() {
                    return Err(format!("{} cached tokens in a shorter prompt", prompt.cached_tokens));
                }
                if prompt.logprobs != self.reference.prompt_logprobs {
                    return Err("wrong log-probabilities of the prompt".to_owned());
                }
            }
            EngineEvent::Token(token) => {
                if !self.prompt_seen {
                    return Err("a token came before the prompt's event".to_owned());
                }
                let choice = token.choice.index();
                let Some(seen) = self.seen.get_mut(choice) else { return Err(format!("unknown choice {choice}")) };
                if token.index as usize != *seen {
                    return Err(format!("choice {choice} went from {seen} tokens to index {}", token.index));
                }
                match self.reference.choices[choice].get(*seen) {
                    Some(output) if output.is(&event) => *seen += 1,
                    output => return Err(format!("choice {choice}, token {seen}: {output:?} expected, got {token:?}")),
                }
                if *seen == self.limits[choice] && token.finish.is_none() {
                    return Ok(Checked::Enough(token.choice));
                }
            }
            EngineEvent::Failed(failed) => return self.fail(failed.error.clone()),
            EngineEvent::Reserved(_) | EngineEvent::Sent(_) => return Err(format!("out of place: {event:?}")),
        }
        Ok(Checked::More)
    }

    /// A failure that blames the caller, or that is final, must have its reason in the request itself.
    fn fail(&self, error: ServeError) -> Result<Checked, String> {
        let fails = self.fails_next();
        match (error.fault, error.retry) {
            (Fault::Caller | Fault::Conflict, _) if !self.too_long => {
                Err(format!("a caller's fault reported for a valid request: {error}"))
            }
            (Fault::Engine, Retry::Never) if !fails => {
                Err(format!("a final error without a reason in the request: {error}"))
            }
            _ => Ok(Checked::Failed(error)),
        }
    }

    /// Whether every choice has all its tokens, or as many as its client wants.
    pub(crate) fn is_complete(&self) -> bool {
        let mut choices = self.reference.choices.iter().zip(&self.seen).zip(&self.limits);
        self.prompt_seen && choices.all(|((output, seen), limits)| output.len() == *seen || seen >= limits)
    }

    /// Whether the next token of some choice has no finite logits.
    fn fails_next(&self) -> bool {
        let next = |(output, seen): (&Vec<Output>, &usize)| output.get(*seen) == Some(&Output::NotFinite);
        self.reference.choices.iter().zip(&self.seen).any(next)
    }

    /// Whether the request must fail on every engine.
    pub(crate) fn is_hopeless(&self) -> bool {
        self.too_long || self.reference.choices.iter().any(|output| output.last() == Some(&Output::NotFinite))
    }
}
