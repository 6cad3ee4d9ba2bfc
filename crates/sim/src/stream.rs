//! What a request must hear: every event in its place, and in the end exactly the model's tokens.

use baton_core::{Choice, EngineEvent, Fault, GenerateRequest, Retry, ServeError};

use crate::model::{Reference, Said};

pub(crate) struct Stream {
    request: GenerateRequest,
    reference: Reference,
    /// The prompt alone does not fit.
    too_long: bool,
    prompt_seen: bool,
    heard: Vec<usize>,
    /// Tokens of each choice after which its client has enough, as after a stop string.
    wanted: Vec<usize>,
}

pub(crate) enum Heard {
    More,
    /// The client has enough of this choice, though it goes on.
    Enough(Choice),
    Failed(ServeError),
}

impl Stream {
    pub(crate) fn new(request: GenerateRequest, context_tokens: usize) -> Self {
        let reference = Reference::of(&request, context_tokens);
        let needed = request.prompt.len() + usize::from(request.limits.max_tokens > 0);
        let choices = request.outputs.len();
        let (heard, wanted) = (vec![0; choices], vec![usize::MAX; choices]);
        Self { too_long: needed > context_tokens, request, reference, prompt_seen: false, heard, wanted }
    }

    pub(crate) fn want(&mut self, choice: usize, tokens: usize) {
        self.wanted[choice] = tokens;
    }

    pub(crate) fn hear(&mut self, event: EngineEvent) -> Result<Heard, String> {
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
                let Some(heard) = self.heard.get_mut(choice) else { return Err(format!("unknown choice {choice}")) };
                if token.index as usize != *heard {
                    return Err(format!("choice {choice} went from {heard} tokens to index {}", token.index));
                }
                match self.reference.choices[choice].get(*heard) {
                    Some(said) if said.is(&event) => *heard += 1,
                    said => return Err(format!("choice {choice}, token {heard}: {said:?} expected, heard {token:?}")),
                }
                if *heard == self.wanted[choice] && token.finish.is_none() {
                    return Ok(Heard::Enough(token.choice));
                }
            }
            EngineEvent::Failed(failed) => return self.fail(failed.error.clone()),
            EngineEvent::Reserved(_) | EngineEvent::Sent(_) => return Err(format!("out of place: {event:?}")),
        }
        Ok(Heard::More)
    }

    /// What the request cannot help is told to the router as such; what it could not survive anywhere is said at once.
    fn fail(&self, error: ServeError) -> Result<Heard, String> {
        let poisoned = self.at_poison();
        match (error.fault, error.retry) {
            (Fault::Caller | Fault::Conflict, _) if !self.too_long => {
                Err(format!("blamed for what was right: {error}"))
            }
            (Fault::Engine, Retry::Never) if !poisoned => Err(format!("given up without need: {error}")),
            _ => Ok(Heard::Failed(error)),
        }
    }

    /// Nothing more is to be said.
    pub(crate) fn is_complete(&self) -> bool {
        let mut choices = self.reference.choices.iter().zip(&self.heard).zip(&self.wanted);
        self.prompt_seen && choices.all(|((said, heard), wanted)| said.len() == *heard || heard >= wanted)
    }

    /// The next token of a choice cannot be computed by anyone.
    fn at_poison(&self) -> bool {
        let next = |(said, heard): (&Vec<Said>, &usize)| said.get(*heard) == Some(&Said::Poison);
        self.reference.choices.iter().zip(&self.heard).any(next)
    }

    /// Whether it must fail, wherever it is served.
    pub(crate) fn is_hopeless(&self) -> bool {
        self.too_long || self.reference.choices.iter().any(|said| said.last() == Some(&Said::Poison))
    }
}
