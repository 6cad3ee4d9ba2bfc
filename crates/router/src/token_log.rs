//! The tokens of each choice that were passed on to the client. It is the truth about the request: what the client has is
//! a function of it, and the next attempt continues from it.

use baton_core::{Choice, GenerateRequest, TokenEvent, TokenId};

pub(crate) struct TokenLog {
    choices: Vec<ChoiceLog>,
}

struct ChoiceLog {
    tokens: Vec<TokenId>,
    ended: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It is the choice's next token, and now in the log.
    Next,
    /// The log has it already.
    Repeat,
    Gap {
        expected: u32,
    },
    UnknownChoice,
}

impl TokenLog {
    pub(crate) fn of(request: &GenerateRequest) -> Self {
        let max_tokens = request.limits.max_tokens as usize;
        let choices = request
            .outputs
            .iter()
            .zip(&request.ended)
            .map(|(tokens, ended)| ChoiceLog { tokens: tokens.clone(), ended: *ended || tokens.len() >= max_tokens });
        Self { choices: choices.collect() }
    }

    pub(crate) fn accept(&mut self, event: &TokenEvent) -> Verdict {
        let Some(choice) = self.choices.get_mut(event.choice.index()) else {
            return Verdict::UnknownChoice;
        };
        let expected = choice.tokens.len() as u32;
        if choice.ended || event.index < expected {
            return Verdict::Repeat;
        }
        if event.index > expected {
            return Verdict::Gap { expected };
        }
        choice.tokens.push(event.token);
        choice.ended = event.finish.is_some();
        Verdict::Next
    }

    /// Nothing more is wanted of this choice.
    pub(crate) fn end(&mut self, choice: Choice) {
        if let Some(choice) = self.choices.get_mut(choice.index()) {
            choice.ended = true;
        }
    }

    pub(crate) fn has_begun(&self) -> bool {
        self.choices.iter().any(|choice| !choice.tokens.is_empty())
    }

    /// Of all choices together.
    pub(crate) fn tokens(&self) -> usize {
        self.choices.iter().map(|choice| choice.tokens.len()).sum()
    }

    pub(crate) fn is_complete(&self) -> bool {
        self.choices.iter().all(|choice| choice.ended)
    }

    /// The request as an engine must see it to go on after the last logged token.
    pub(crate) fn continued(&self, request: &GenerateRequest, prompt_sent: bool) -> GenerateRequest {
        GenerateRequest {
            outputs: self.choices.iter().map(|choice| choice.tokens.clone()).collect(),
            ended: self.choices.iter().map(|choice| choice.ended).collect(),
            prompt_logprobs: if prompt_sent { None } else { request.prompt_logprobs },
            ..request.clone()
        }
    }
}

#[cfg(test)]
mod tests {
    use baton_core::{Attempt, FinishReason, Limits, RequestId, SamplingParams};

    use super::*;

    fn request(choices: usize) -> GenerateRequest {
        GenerateRequest {
            id: RequestId(1),
            attempt: Attempt(0),
            prompt: [TokenId(9)].into(),
            outputs: vec![vec![]; choices],
            ended: vec![false; choices],
            sampling: SamplingParams::greedy(),
            limits: Limits { max_tokens: 8, min_tokens: 0, stop_tokens: vec![] },
            logprobs: None,
            prompt_logprobs: Some(2),
            adapter: None,
            pooling: None,
            affinity: None,
        }
    }

    fn event(choice: u32, index: u32, ends: bool) -> TokenEvent {
        TokenEvent {
            request: RequestId(1),
            attempt: Attempt(0),
            choice: Choice(choice),
            index,
            token: TokenId(10 * choice + index),
            logprobs: None,
            finish: ends.then_some(FinishReason::Length),
        }
    }

    #[test]
    fn each_choice_advances_by_one_and_ends_once() {
        let mut log = TokenLog::of(&request(2));
        let steps = [
            (event(0, 0, false), Verdict::Next),
            (event(1, 0, false), Verdict::Next),
            (event(0, 0, false), Verdict::Repeat),
            (event(0, 2, false), Verdict::Gap { expected: 1 }),
            (event(2, 0, false), Verdict::UnknownChoice),
            (event(0, 1, true), Verdict::Next),
            (event(0, 2, false), Verdict::Repeat),
            (event(1, 1, true), Verdict::Next),
        ];
        for (step, (event, verdict)) in steps.iter().enumerate() {
            assert!(!log.is_complete(), "before step {step}");
            assert_eq!(log.accept(event), *verdict, "step {step}");
        }
        assert!(log.is_complete());
    }

    #[test]
    fn a_choice_that_is_not_wanted_any_more_has_ended() {
        let mut log = TokenLog::of(&request(2));
        log.accept(&event(0, 0, false));
        log.end(Choice(0));
        log.end(Choice(7));
        assert_eq!(log.accept(&event(0, 1, false)), Verdict::Repeat);
        assert_eq!(log.continued(&request(2), true).ended, [true, false]);
        log.end(Choice(1));
        assert!(log.is_complete());
    }

    #[test]
    fn nothing_to_generate_is_complete_from_the_start() {
        let mut request = request(1);
        request.limits.max_tokens = 0;
        assert!(TokenLog::of(&request).is_complete());
    }

    #[test]
    fn the_next_attempt_carries_the_log() {
        let mut log = TokenLog::of(&request(2));
        assert!(!log.has_begun());
        log.accept(&event(1, 0, false));
        log.accept(&event(1, 1, true));
        assert!(log.has_begun());
        let continued = log.continued(&request(2), true);
        assert_eq!(continued.outputs, [vec![], vec![TokenId(10), TokenId(11)]]);
        assert_eq!(continued.ended, [false, true]);
        assert_eq!(continued.prompt_logprobs, None);
        assert_eq!(log.continued(&request(2), false).prompt_logprobs, Some(2));
    }
}
