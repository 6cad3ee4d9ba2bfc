//! Commands in: requests are checked against what this engine can ever do, then queued.

use std::sync::Arc;
use std::time::Duration;

use baton_core::{
    Attempt, Choice, EngineEvent, FailedEvent, GenerateRequest, RequestId, ReservationId, ServeError, TokenId,
};
use baton_protocol::{Command, SessionId};

use super::{Scheduler, SessionEvent};
use crate::request::{ActiveRequest, Progress, PromptProgress};
use crate::sequence::{RequestKey, Sequence, SequenceId, Stage};

impl Scheduler {
    /// A request that has been taken up waited longer than that.
    pub(crate) fn arrived(&mut self, key: RequestKey, at: Duration) {
        if let Some(request) = self.requests.get_mut(&key) {
            request.progress.arrive(at);
        }
    }

    pub fn apply(&mut self, now: Duration, session: SessionId, command: Command, events: &mut Vec<SessionEvent>) {
        let opens = command.opens();
        let applied = match command {
            Command::PrepRecv(call) => {
                self.prep_recv(now, session, *call).map(|event| events.push(SessionEvent { session, event }))
            }
            Command::RemoteSend(call) => self.remote_send(now, session, *call),
            Command::Generate { request, reservation } => self.generate(now, session, *request, reservation),
            Command::Release(reservation) => {
                self.release(now, session, reservation);
                Ok(())
            }
            Command::Abort(request) => {
                self.abort(session, request);
                Ok(())
            }
            Command::AbortChoice { request, choice } => {
                self.abort_choice(session, request, choice);
                Ok(())
            }
            // Outboxes' business.
            Command::FollowCache => Ok(()),
        };
        if let (Err(error), Some((request, attempt))) = (applied, opens) {
            let event = EngineEvent::Failed(FailedEvent { request, attempt, error });
            events.push(SessionEvent { session, event });
        }
    }

    /// With a reservation the prompt may be left out. The reservation is used up, also by a request that is refused.
    pub fn generate(
        &mut self,
        now: Duration,
        session: SessionId,
        mut request: GenerateRequest,
        from: Option<ReservationId>,
    ) -> Result<(), ServeError> {
        let owner = RequestKey { session, request: request.id };
        let reserved = from.and_then(|id| self.claim(owner, id));
        if request.prompt.is_empty()
            && let Some(id) = from
        {
            let gone = || ServeError::engine(format!("reservation {id} has expired, or never was"));
            request.prompt = reserved.as_ref().map(|reserved| Arc::clone(&reserved.prompt)).ok_or_else(gone)?;
        }
        let leader = if let Some(conflict) = reserved.as_ref().and_then(|reserved| reserved.conflict(&request)) {
            Err(conflict)
        } else {
            self.enqueue(now, session, request)
        };
        match (&leader, reserved) {
            (Ok(leader), Some(reserved)) => self.park(now, *leader, reserved),
            (Ok(leader), None) => self.make_ready(*leader),
            (Err(_), Some(reserved)) => self.give_back(reserved),
            (Err(_), None) => {}
        }
        leader.map(drop)
    }

    /// Makes sequences of all choices; the first, which is returned, computes the prompt.
    fn enqueue(
        &mut self,
        now: Duration,
        session: SessionId,
        mut request: GenerateRequest,
    ) -> Result<SequenceId, ServeError> {
        self.limits.check(&request)?;
        let key = RequestKey { session, request: request.id };
        self.make_way(key, request.attempt)?;

        let mut choices: Vec<_> = request.unfinished_choices().collect();
        let generates = !choices.is_empty();
        let mut outputs = std::mem::take(&mut request.outputs);
        if !generates {
            choices.push(Choice(0));
            outputs[0].clear();
        }
        let leader = SequenceId(self.next_sequence);
        let mut sequences = Vec::with_capacity(choices.len());
        for choice in choices {
            let outputs = &outputs[choice.index()];
            let id = self.queue(key, choice, [&*request.prompt, outputs].concat());
            if let (true, Some(maker), Some(sequence)) = (generates, &mut self.masks, self.sequences.get_mut(&id)) {
                sequence.masks = maker.masks_of(&request, choice, outputs);
            }
            sequences.push(id);
        }
        let prompt =
            PromptProgress::Computing { leader, leader_unwanted: false, cached_tokens: None, logprobs: Vec::new() };
        let progress = Progress::new(now);
        self.requests.insert(
            key,
            ActiveRequest { input: request, generates, sequences, prompt, pooled: None, export: None, progress },
        );
        Ok(leader)
    }

    /// A newer attempt replaces an older one that has not ended.
    pub(super) fn make_way(&mut self, key: RequestKey, attempt: Attempt) -> Result<(), ServeError> {
        match self.requests.get(&key) {
            Some(older) if older.input.attempt < attempt => {
                self.remove_request(key, true);
                self.counters.aborted += 1;
            }
            Some(_) => return Err(ServeError::conflict(format!("request {} is running already", key.request))),
            None => {}
        }
        let waiting = self.waiting_sequences();
        if waiting >= self.limits.max_waiting {
            return Err(ServeError::busy(format!("{waiting} sequences are waiting already"), self.retry_after_ms()));
        }
        Ok(())
    }

    pub(super) fn queue(&mut self, request: RequestKey, choice: Choice, tokens: Vec<TokenId>) -> SequenceId {
        let id = SequenceId(self.next_sequence);
        self.next_sequence += 1;
        self.sequences.insert(id, Sequence { request, choice, tokens, masks: None, stage: Stage::AwaitingPrompt });
        id
    }

    /// Ends the session's request or reservation with this id.
    pub fn abort(&mut self, session: SessionId, request: RequestId) {
        let key = RequestKey { session, request };
        self.abandon_all(|owner| owner == key);
        if self.remove_request(key, true).is_some() {
            self.counters.aborted += 1;
        }
    }

    /// The other choices go on. A leader first computes the prompt, which they wait for.
    fn abort_choice(&mut self, session: SessionId, request: RequestId, choice: Choice) {
        let Some(request) = self.requests.get_mut(&RequestKey { session, request }) else { return };
        let is_it = |id: &&SequenceId| self.sequences.get(*id).is_some_and(|sequence| sequence.choice == choice);
        let Some(&id) = request.sequences.iter().find(is_it).filter(|_| request.generates) else { return };
        if request.sequences.len() > 1
            && let PromptProgress::Computing { leader, leader_unwanted, .. } = &mut request.prompt
            && *leader == id
        {
            *leader_unwanted = true;
        } else {
            self.end(id);
        }
    }

    /// Aborts all requests and reservations of a session.
    pub fn close_session(&mut self, session: SessionId) {
        let first = RequestKey { session, request: RequestId(0) };
        let last = RequestKey { session, request: RequestId(u64::MAX) };
        while let Some((&key, _)) = self.requests.range(first..=last).next() {
            self.abort(session, key.request);
        }
        self.abandon_all(|owner| owner.session == session);
    }

    /// Ends every request with this error.
    pub fn fail_all(&mut self, error: &ServeError, events: &mut Vec<SessionEvent>) {
        while let Some((&key, _)) = self.requests.first_key_value() {
            if let Some(request) = self.remove_request(key, false) {
                events.push(SessionEvent { session: key.session, event: request.failed(error.clone()) });
            }
        }
        self.abandon_all(|_| true);
    }

    /// How long the work that waits will take at the speed seen so far.
    pub(super) fn retry_after_ms(&self) -> u32 {
        let counters = &self.counters;
        let computed_tokens = (counters.prefill_tokens + counters.generated_tokens).max(1);
        let wait_us = self.pending_prefill_tokens().saturating_mul(counters.busy_us) / computed_tokens;
        (wait_us / 1000).clamp(100, 10_000) as u32
    }
}
