//! Results in, events out.

use std::time::Duration;

use baton_backend::{CannotSample, PromptLogprob, Sample, SlotId, StepOutput};
use baton_core::{EngineEvent, Fault, PAGE_TOKENS, Retry, ServeError, StepWork, TokenEvent, TokenId, TokenLogprobs};

use super::{Row, Scheduler, SessionEvent};
use crate::error::EngineError;
use crate::sequence::{Phase, Sequence, SequenceId, Stage};

impl Scheduler {
    /// Takes the results of the oldest step in flight.
    pub fn complete(
        &mut self,
        now: Duration,
        output: &mut StepOutput,
        events: &mut Vec<SessionEvent>,
    ) -> Result<(), EngineError> {
        let Some(mut step) = self.in_flight.pop_front() else {
            return Err(EngineError::Results("no step is in flight".to_owned()));
        };
        self.ledger.collect(step.number);
        let began = step.planned_at.max(self.completed_at);
        self.completed_at = now;
        if !step.rows.is_empty() {
            let (took, work) = (now.saturating_sub(began), self.work_of(&step.rows));
            self.counters.steps += 1;
            self.counters.busy_us += took.as_micros() as u64;
            self.counters.prefill_us += self.costs.step(&work, took).as_micros() as u64;
        }
        let result = self.complete_rows(now, &step.rows, output, events);
        step.rows.clear();
        self.rows = step.rows;
        result
    }

    /// What the step has computed; rows of sequences that have ended meanwhile do not count.
    fn work_of(&self, rows: &[Row]) -> StepWork {
        let mut work = StepWork::default();
        for row in rows {
            let Some(Sequence { stage: Stage::Running(run), .. }) = self.sequences.get(&row.sequence) else { continue };
            let computed = run.computed as u64;
            // The last token of a prompt whose KV came from elsewhere costs what a token of an answer does.
            if row.phase == Phase::Decoding || row.tokens == 1 {
                work.sequences += 1;
                work.context += computed;
            } else {
                let prompt = StepWork::prefill(computed, row.tokens as u64);
                work.prefill_tokens += prompt.prefill_tokens;
                work.prefill_context += prompt.prefill_context;
            }
        }
        work
    }

    fn complete_rows(
        &mut self,
        now: Duration,
        rows: &[Row],
        output: &mut StepOutput,
        events: &mut Vec<SessionEvent>,
    ) -> Result<(), EngineError> {
        self.note_prompt_logprobs(rows, output.prompt_logprobs.drain(..))?;
        let failed: Vec<(SlotId, ServeError)> = output.failed.drain(..).collect();
        let has_failed = |row: &Row| failed.iter().any(|(slot, _)| *slot == row.slot);
        for (slot, error) in &failed {
            if let Some(row) = rows.iter().find(|row| row.slot == *slot) {
                self.fail(row.sequence, error.clone(), events);
            }
        }
        let mut pooled = output.pooled.drain(..);
        for row in rows.iter().filter(|row| row.pools && !has_failed(row)) {
            let Some((_, vector)) = pooled.next().filter(|(slot, _)| *slot == row.slot) else {
                return Err(EngineError::Results(format!("no pooled states of slot {}", row.slot.0)));
            };
            self.note_pooled(row, vector);
        }
        for row in rows.iter().filter(|row| !has_failed(row)) {
            self.advance(now, row, events);
        }
        let mut samples = output.samples.drain(..).peekable();
        for row in rows.iter().filter(|row| row.samples > 0 && !has_failed(row)) {
            let of_row = |sample: &Sample| sample.slot == row.slot;
            if !samples.peek().is_some_and(of_row) {
                return Err(EngineError::Results(format!("no sample for slot {}", row.slot.0)));
            }
            for nth in 0..row.samples {
                let Some(Sample { token, logprobs, .. }) = samples.next_if(of_row) else { break };
                match token {
                    Ok(token) => self.accept(row.sequence, (nth, token), logprobs, events),
                    Err(error) => self.fail(row.sequence, cannot_sample(error), events),
                }
            }
        }
        match samples.next() {
            Some(sample) => Err(EngineError::Results(format!("a sample too many, for slot {}", sample.slot.0))),
            None => Ok(()),
        }
    }

    /// They come in the order of the rows.
    fn note_prompt_logprobs(
        &mut self,
        rows: &[Row],
        found: impl Iterator<Item = PromptLogprob>,
    ) -> Result<(), EngineError> {
        let mut rows = rows.iter().peekable();
        for PromptLogprob { slot, position, logprobs } in found {
            while rows.next_if(|row| row.slot != slot).is_some() {}
            let row = rows.peek().ok_or_else(|| EngineError::Results(format!("no row has slot {}", slot.0)))?;
            if let Some(sequence) = self.sequences.get(&row.sequence)
                && let Some(request) = self.requests.get_mut(&sequence.request)
            {
                request.note_prompt_logprobs(position, logprobs);
            }
        }
        Ok(())
    }

    fn note_pooled(&mut self, row: &Row, vector: Vec<f32>) {
        if let Some(sequence) = self.sequences.get(&row.sequence)
            && let Some(request) = self.requests.get_mut(&sequence.request)
        {
            request.pooled = Some(vector);
        }
    }

    /// The row's tokens are computed.
    fn advance(&mut self, now: Duration, row: &Row, events: &mut Vec<SessionEvent>) {
        let Some(sequence) = self.sequences.get_mut(&row.sequence) else { return };
        let Sequence { request: key, tokens, stage: Stage::Running(run), .. } = sequence else { return };
        let (key, begin) = (*key, run.computed);
        run.computed += row.tokens;
        if row.phase == Phase::Decoding {
            return;
        }
        let (computed, all_computed) = (run.computed, run.computed == tokens.len());
        self.counters.prefill_tokens += row.tokens as u64;
        // At once, so that requests that arrive while this one runs share its prompt.
        if computed / PAGE_TOKENS > begin / PAGE_TOKENS {
            self.ledger.insert(&tokens[..computed], &run.pages);
        }

        let Some(request) = self.requests.get_mut(&key) else { return };
        if request.export.is_some() {
            if all_computed {
                self.deliver(now, row.sequence);
            }
            return;
        }
        let leader_unwanted = request.leader_unwanted();
        let Some(event) = request.report_prompt(now, row.sequence, computed) else { return };
        events.push(SessionEvent { session: key.session, event });
        if !request.generates {
            return self.end(row.sequence);
        }
        let siblings = request.sequences[1..].to_vec();
        for &sibling in &siblings {
            self.make_ready(sibling);
        }
        // Before the leader can end and take its pages along.
        while self.waiting.first().is_some_and(|first| siblings.contains(first)) && self.admit_next().is_some() {}
        if leader_unwanted {
            self.end(row.sequence);
        }
    }

    /// The `nth` token of a step. Those behind a sequence's last are void: it is gone.
    fn accept(
        &mut self,
        id: SequenceId,
        (nth, token): (usize, TokenId),
        logprobs: Option<TokenLogprobs>,
        events: &mut Vec<SessionEvent>,
    ) {
        let Some(sequence) = self.sequences.get_mut(&id) else { return };
        let Some(request) = self.requests.get(&sequence.request) else { return };
        let Stage::Running(run) = &mut sequence.stage else { return };
        match nth {
            0 => run.sampling -= 1,
            // The step has computed the one before, too.
            _ => (run.computed, run.scheduled) = (run.computed + 1, run.scheduled + 1),
        }
        sequence.tokens.push(token);
        sequence.masks.iter_mut().for_each(|masks| masks.sampled(token));
        let finish = request.finish(token, sequence.tokens.len(), self.limits.context_tokens);
        let event = EngineEvent::Token(TokenEvent {
            request: request.input.id,
            attempt: request.input.attempt,
            choice: sequence.choice,
            index: (sequence.tokens.len() - request.input.prompt.len() - 1) as u32,
            token,
            logprobs,
            finish,
        });
        events.push(SessionEvent { session: sequence.request.session, event });
        self.counters.generated_tokens += 1;
        if finish.is_some() {
            self.end(id);
        }
    }

    /// A sequence has all it wanted; with its last one the request has.
    pub(super) fn end(&mut self, id: SequenceId) {
        let Some(key) = self.sequences.get(&id).map(|sequence| sequence.request) else { return };
        self.remove_sequence(id, true);
        if let Some(request) = self.requests.get_mut(&key) {
            request.sequences.retain(|&live| live != id);
            if request.sequences.is_empty() {
                self.requests.remove(&key);
                self.counters.finished += 1;
            }
        }
    }

    /// The others go on.
    fn fail(&mut self, id: SequenceId, error: ServeError, events: &mut Vec<SessionEvent>) {
        let Some(key) = self.sequences.get(&id).map(|sequence| sequence.request) else { return };
        if let Some(request) = self.remove_request(key, false) {
            events.push(SessionEvent { session: key.session, event: request.failed(error) });
        }
    }
}

fn cannot_sample(error: CannotSample) -> ServeError {
    let message = error.to_string();
    match error {
        // The same tokens would give the same logits on every engine.
        CannotSample::NotFinite => ServeError { fault: Fault::Engine, retry: Retry::Never, message, param: None },
        CannotSample::NothingAllowed => ServeError::caller(message),
        CannotSample::NoMask => ServeError::engine(message),
    }
}
