//! What a request must receive: every event in its place, and in the end exactly the model's tokens.

use baton_core::{Attempt, EngineEvent, Fault, FinishReason, GenerateRequest, ServeError, TokenId};

use super::{POISONED_SEED, expected_prompt_logprobs, expected_tokens};

pub(crate) struct Stream {
    pub(crate) request: GenerateRequest,
    prompt_seen: bool,
    pub(crate) outputs: Vec<Vec<TokenId>>,
    pub(crate) opened_at_step: u64,
}

pub(crate) enum Taken {
    More,
    /// All choices have ended, with the right tokens.
    End,
    Failed(ServeError),
}

impl Stream {
    pub(crate) fn new(request: GenerateRequest, step: u64) -> Self {
        let outputs = request.outputs.clone();
        Self { request, prompt_seen: false, outputs, opened_at_step: step }
    }

    pub(crate) fn take(&mut self, event: EngineEvent, context_tokens: usize) -> Taken {
        assert_eq!(event.attempt(), self.request.attempt);
        match event {
            EngineEvent::Prompt(prompt) => {
                assert!(!std::mem::replace(&mut self.prompt_seen, true), "two prompt events");
                let computed = usize::from(self.request.attempt == Attempt(0));
                assert!(prompt.cached_tokens as usize + computed <= self.request.prompt.len());
                assert_eq!(prompt.logprobs, expected_prompt_logprobs(&self.request));
            }
            EngineEvent::Token(token) => {
                assert!(self.prompt_seen, "a token before the prompt's event");
                let outputs = &mut self.outputs[token.choice.index()];
                assert_eq!(token.index as usize, outputs.len(), "gap or repeat");
                outputs.push(token.token);
                let total = self.request.prompt.len() + outputs.len();
                let finish = if self.request.limits.stop_tokens.contains(&token.token) {
                    Some(FinishReason::StopToken)
                } else if total >= self.request.max_total_tokens().min(context_tokens) {
                    Some(FinishReason::Length)
                } else {
                    None
                };
                assert_eq!(token.finish, finish);
            }
            EngineEvent::Reserved(_) | EngineEvent::Sent(_) => panic!("{event:?}"),
            EngineEvent::Failed(failed) => {
                assert_eq!(failed.error.fault, Fault::Engine, "{}", failed.error);
                assert_eq!(self.request.sampling.seed, POISONED_SEED, "{}", failed.error);
                return Taken::Failed(failed.error);
            }
        }
        if self.prompt_seen && (0..self.outputs.len()).all(|at| self.has_ended(at, context_tokens)) {
            self.check_tokens(context_tokens);
            return Taken::End;
        }
        Taken::More
    }

    pub(crate) fn has_ended(&self, choice: usize, context_tokens: usize) -> bool {
        let outputs = &self.outputs[choice];
        let stopped = outputs.last().is_some_and(|token| self.request.limits.stop_tokens.contains(token));
        let most = self.request.max_total_tokens().min(context_tokens) - self.request.prompt.len();
        self.request.ended[choice] || stopped || outputs.len() >= most
    }

    fn check_tokens(&self, context_tokens: usize) {
        for choice in self.request.choices().filter(|choice| !self.request.ended[choice.index()]) {
            let given = self.request.outputs[choice.index()].len();
            let expected = expected_tokens(&self.request, choice, context_tokens);
            let got: Vec<_> = self.outputs[choice.index()][given..].iter().copied().map(Some).collect();
            assert_eq!(got, expected, "{:?} of {:?}", choice, self.request.id);
        }
    }
}
