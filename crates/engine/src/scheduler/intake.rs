//! Commands in: what is asked is checked against what this engine can ever do, then queued.

use baton_core::{Choice, EngineEvent, FailedEvent, GenerateRequest, PAGE_TOKENS, RequestId, ServeError, TokenId};
use baton_protocol::{Command, SessionId};

use super::{Scheduler, SessionEvent, StepLimits};
use crate::request::{ActiveRequest, PromptProgress};
use crate::sequence::{RequestKey, Sequence, SequenceId, Stage};

impl Scheduler {
    pub fn apply(&mut self, session: SessionId, command: Command, events: &mut Vec<SessionEvent>) {
        let opens = command.opens();
        let applied = match command {
            Command::Generate { request, reservation: None } => self.generate(session, *request),
            Command::Generate { reservation: Some(_), .. } | Command::PrepRecv(_) | Command::RemoteSend(_) => {
                Err(ServeError::engine("this engine does not hand KV over"))
            }
            Command::Release(_) => Ok(()),
            Command::Abort(request) => {
                self.abort(session, request);
                Ok(())
            }
        };
        if let (Err(error), Some((request, attempt))) = (applied, opens) {
            let event = EngineEvent::Failed(FailedEvent { request, attempt, error });
            events.push(SessionEvent { session, event });
        }
    }

    /// A newer attempt replaces an older one that has not ended.
    pub fn generate(&mut self, session: SessionId, mut asked: GenerateRequest) -> Result<(), ServeError> {
        self.limits.check(&asked)?;
        let key = RequestKey { session, request: asked.id };
        match self.requests.get(&key) {
            Some(older) if older.asked.attempt < asked.attempt => self.abort(session, asked.id),
            Some(_) => return Err(ServeError::caller(format!("request {} is running already", asked.id))),
            None => {}
        }
        let waiting = self.sequences.len() - self.running.len();
        if waiting >= self.limits.max_waiting {
            return Err(ServeError::busy(format!("{waiting} sequences are waiting already"), self.retry_after_ms()));
        }

        let mut choices: Vec<_> = asked.unfinished_choices().collect();
        let generates = !choices.is_empty();
        let mut outputs = std::mem::take(&mut asked.outputs);
        if !generates {
            choices.push(Choice(0));
            outputs[0].clear();
        }
        let leader = SequenceId(self.next_sequence);
        let mut sequences = Vec::with_capacity(choices.len());
        for choice in choices {
            sequences.push(self.queue(key, choice, [&*asked.prompt, &outputs[choice.index()]].concat()));
        }
        self.make_ready(leader);
        let prompt = PromptProgress::Computing { leader, cached_tokens: None, logprobs: Vec::new() };
        self.requests.insert(key, ActiveRequest { asked, generates, sequences, prompt });
        Ok(())
    }

    fn queue(&mut self, request: RequestKey, choice: Choice, tokens: Vec<TokenId>) -> SequenceId {
        let id = SequenceId(self.next_sequence);
        self.next_sequence += 1;
        self.sequences.insert(id, Sequence { request, choice, tokens, stage: Stage::AwaitingPrompt });
        id
    }

    pub fn abort(&mut self, session: SessionId, request: RequestId) {
        if self.remove_request(RequestKey { session, request }, true).is_some() {
            self.counters.aborted += 1;
        }
    }

    /// Aborts whatever this session asked for.
    pub fn close_session(&mut self, session: SessionId) {
        let first = RequestKey { session, request: RequestId(0) };
        let last = RequestKey { session, request: RequestId(u64::MAX) };
        while let Some((&key, _)) = self.requests.range(first..=last).next() {
            self.abort(session, key.request);
        }
    }

    /// Ends every request with this error.
    pub fn fail_all(&mut self, error: &ServeError, events: &mut Vec<SessionEvent>) {
        while let Some((&key, _)) = self.requests.first_key_value() {
            if let Some(request) = self.remove_request(key, false) {
                events.push(SessionEvent { session: key.session, event: request.failed(error.clone()) });
            }
        }
    }

    /// How long the work that waits will take at the speed seen so far.
    fn retry_after_ms(&self) -> u32 {
        let counters = &self.counters;
        let computed_tokens = (counters.prefill_tokens + counters.generated_tokens).max(1);
        let wait_us = self.pending_prefill_tokens().saturating_mul(counters.busy_us) / computed_tokens;
        (wait_us / 1000).clamp(100, 10_000) as u32
    }
}

impl StepLimits {
    fn check(&self, asked: &GenerateRequest) -> Result<(), ServeError> {
        if asked.prompt.is_empty() {
            return Err(ServeError::caller("the prompt has no tokens").about("prompt"));
        }
        let choices = asked.outputs.len();
        if choices == 0 || choices > self.max_waiting || choices != asked.ended.len() {
            let bound = self.max_waiting;
            return Err(
                ServeError::caller(format!("{choices} choices asked for, 1 to {bound} are possible")).about("n")
            );
        }
        let known = |token: TokenId| token.index() < self.vocab_size;
        let unknown = |tokens: &[TokenId]| tokens.iter().copied().find(|&token| !known(token));
        if let Some(token) = unknown(&asked.prompt).or_else(|| asked.outputs.iter().find_map(|out| unknown(out))) {
            return Err(self.not_in_vocabulary(token).about("prompt"));
        }
        if let Some(&(token, _)) = asked.sampling.logit_bias.iter().find(|(token, _)| !known(*token)) {
            return Err(self.not_in_vocabulary(token).about("logit_bias"));
        }
        self.check_length(asked)
    }

    fn not_in_vocabulary(&self, token: TokenId) -> ServeError {
        ServeError::caller(format!("token {token} is not in the vocabulary of {} tokens", self.vocab_size))
    }

    /// Generation stops where the context ends, so only what is there already, and one token more, has to fit.
    fn check_length(&self, asked: &GenerateRequest) -> Result<(), ServeError> {
        let given = asked.unfinished_choices().map(|choice| asked.outputs[choice.index()].len() + 1).max().unwrap_or(0);
        let needed = asked.prompt.len() + given;
        if needed <= self.context_tokens {
            return Ok(());
        }
        let room = if self.context_tokens < self.pages_total * PAGE_TOKENS {
            format!("the model's context is {} tokens", self.context_tokens)
        } else {
            format!("the KV pool has {} pages of {PAGE_TOKENS} tokens", self.pages_total)
        };
        let prompt = asked.prompt.len();
        Err(ServeError::caller(format!("a prompt of {prompt} tokens needs room for {needed}, but {room}"))
            .about("prompt"))
    }
}
