//! An engine at its step boundaries, without a thread or a clock: its driver passes in what has arrived and what time it
//! is. The step loop is one driver, a simulation another.

use std::collections::VecDeque;
use std::time::Duration;

use baton_backend::{Backend, StepOutput, Ticket};
use baton_core::{
    CacheEvent, EngineEvent, EngineReport, FailedEvent, Fault, PromptTimes, RequestId, ReservationId, Retry, ServeError,
};
use baton_kv::Discrepancy;
use baton_protocol::{Command, SessionId};

use crate::error::EngineError;
use crate::handoff::{ExportId, Exported};
use crate::outbox::{Emitted, Outbox, Outboxes, REPORT_INTERVAL, Status};
use crate::scheduler::{Scheduler, SessionEvent};
use crate::sequence::RequestKey;

/// Steps begin with [`begin_step`](Self::begin_step), as many as the backend takes at once, and end in the same order with
/// [`end_step`](Self::end_step). What arrives is passed in between; answers leave with [`emit`](Self::emit).
pub struct Stepper {
    backend: Box<dyn Backend>,
    scheduler: Scheduler,
    /// Oldest first.
    in_flight: VecDeque<Ticket>,
    output: StepOutput,
    outboxes: Outboxes,
    mode: Mode,
    /// Not yet emitted.
    events: Vec<SessionEvent>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    Serving,
    /// Finishes what it has.
    Draining,
    Stopped,
}

impl Stepper {
    pub fn new(backend: Box<dyn Backend>, scheduler: Scheduler) -> Self {
        Self {
            backend,
            scheduler,
            in_flight: VecDeque::new(),
            output: StepOutput::default(),
            outboxes: Outboxes::default(),
            mode: Mode::Serving,
            events: Vec::new(),
        }
    }

    pub fn open(&mut self, session: SessionId, outbox: Box<dyn Outbox>) {
        self.outboxes.open(session, outbox);
    }

    pub fn close(&mut self, session: SessionId) {
        self.scheduler.close_session(session);
        self.outboxes.close(session);
    }

    /// A session whose reader is gone may be closed while commands of it are on their way here: nothing is begun for it.
    pub fn command(&mut self, now: Duration, session: SessionId, command: Command) {
        if !self.outboxes.is_open(session) {
            return;
        }
        match command.opens() {
            None if matches!(command, Command::FollowCache) => self.outboxes.follow_cache(session),
            Some((request, attempt)) if self.mode != Mode::Serving => {
                let event = EngineEvent::Failed(FailedEvent { request, attempt, error: refuse_while_draining() });
                self.events.push(SessionEvent { session, event });
            }
            _ => self.scheduler.apply(now, session, command, &mut self.events),
        }
    }

    /// A request came in during the last step, and has waited since.
    pub fn arrived(&mut self, session: SessionId, request: RequestId, at: Duration) {
        self.scheduler.arrived(RequestKey { session, request }, at);
    }

    /// A sender has offered everything.
    pub fn landed(&mut self, now: Duration, reservation: ReservationId, sender: PromptTimes) {
        self.scheduler.landed(now, reservation, sender);
    }

    /// A revoked reservation's pages are written no more.
    pub fn revoked(&mut self, reservation: ReservationId, verified_tokens: usize) {
        self.scheduler.revoked(reservation, verified_tokens);
    }

    /// What became of a hand-off.
    pub fn exported(&mut self, export: ExportId, outcome: Result<Exported, String>) {
        self.scheduler.exported(export, outcome, &mut self.events);
    }

    /// From now on refuses what is new, and has ended when the rest is done.
    pub fn drain(&mut self) {
        if self.mode == Mode::Serving {
            self.mode = Mode::Draining;
        }
    }

    pub fn stop(&mut self) {
        self.mode = Mode::Stopped;
    }

    pub fn has_ended(&self) -> bool {
        self.mode == Mode::Stopped || self.mode == Mode::Draining && self.scheduler.is_idle()
    }

    /// `false` when nothing can be begun: only the end of a step, something that arrives, or
    /// [a deadline](Self::next_deadline) changes that.
    pub fn begin_step(&mut self, now: Duration) -> Result<bool, EngineError> {
        self.scheduler.tick(now, &mut self.events);
        if self.mode == Mode::Stopped {
            return Ok(false);
        }
        let Some(plan) = self.scheduler.schedule(now) else {
            self.scheduler.check_not_stuck()?;
            return Ok(false);
        };
        self.in_flight.push_back(self.backend.submit(plan)?);
        Ok(true)
    }

    /// Waits for the oldest step; `false` when none is in flight. `now` is called when the step is over.
    pub fn end_step(&mut self, now: impl FnOnce() -> Duration) -> Result<bool, EngineError> {
        let Some(ticket) = self.in_flight.pop_front() else { return Ok(false) };
        self.backend.collect(ticket, &mut self.output)?;
        self.scheduler.complete(now(), &mut self.output, &mut self.events)?;
        Ok(true)
    }

    pub fn steps_in_flight(&self) -> usize {
        self.in_flight.len()
    }

    pub fn next_deadline(&self) -> Option<Duration> {
        self.scheduler.next_deadline()
    }

    pub fn report(&mut self) -> EngineReport {
        let mut report = self.scheduler.report();
        self.backend.count_shards(&mut report.shards);
        report
    }

    /// Sends events, and with them the engine's report. Returns how long to wait at most before the next round.
    pub fn emit(&mut self, now: Duration, report: EngineReport) -> Duration {
        self.pass_on_cache_changes();
        let status =
            Status { report, session_loads: self.scheduler.session_loads(), now, idle: self.scheduler.is_idle() };
        let emitted = self.outboxes.emit(&mut self.events, &status);
        for &session in &emitted.gone {
            self.close(session);
        }
        match emitted {
            // What they held is free now.
            Emitted { gone, .. } if !gone.is_empty() => Duration::ZERO,
            Emitted { unreported: true, .. } => REPORT_INTERVAL,
            Emitted { .. } => Duration::MAX,
        }
    }

    fn pass_on_cache_changes(&mut self) {
        if let Some(changes) = self.scheduler.take_cache_changes() {
            if self.outboxes.follows_cache() {
                self.outboxes.cache_changed(&changes);
            } else {
                self.scheduler.stop_recording_cache();
            }
        }
        if self.outboxes.needs_cache_snapshot() {
            let snapshot = self.scheduler.cache_snapshot();
            self.outboxes.cache_snapshot(&snapshot);
        }
    }

    /// Everything in the prefix cache, for tests; while it is followed, this changes nothing.
    pub fn cache_snapshot(&mut self) -> Vec<CacheEvent> {
        self.scheduler.cache_snapshot()
    }

    /// Ends every request with this error; it is sent with the next [`emit`](Self::emit).
    pub fn fail_all(&mut self, error: &ServeError) {
        self.scheduler.fail_all(error, &mut self.events);
    }

    pub fn audit(&self) -> Result<(), Discrepancy> {
        self.scheduler.audit()
    }
}

fn refuse_while_draining() -> ServeError {
    ServeError {
        fault: Fault::Capacity,
        retry: Retry::Elsewhere,
        message: "the engine is shutting down".to_owned(),
        param: None,
    }
}
