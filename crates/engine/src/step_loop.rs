//! The engine's only loop and the only place that changes its state: commands, then schedule → submit → collect → emit.

use std::sync::Arc;
use std::time::{Duration, Instant};

use baton_compute::{Backend, StepOutput};
use baton_core::{EngineEvent, EngineReport, FailedEvent, Fault, Retry, ServeError};
use baton_protocol::SessionId;
use tokio::sync::watch;

use crate::error::EngineError;
use crate::inbox::{Inbox, Message};
use crate::outbox::{Emitted, News, Outboxes, SILENCE};
use crate::scheduler::{Scheduler, SessionEvent};

pub(crate) struct StepLoop {
    pub(crate) backend: Box<dyn Backend>,
    pub(crate) scheduler: Scheduler,
    /// Zero of the time that the scheduler sees.
    pub(crate) started: Instant,
    pub(crate) inbox: Arc<Inbox>,
    pub(crate) report: watch::Sender<EngineReport>,
    pub(crate) outboxes: Outboxes,
    pub(crate) mode: Mode,
    pub(crate) events: Vec<SessionEvent>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    Serving,
    /// Finishes what it has.
    Draining,
    Stopped,
}

impl StepLoop {
    /// Returns when told to, or with the error that ended the engine. All requests have been answered then.
    pub(crate) fn run(mut self) -> Result<(), EngineError> {
        let ended = self.serve();
        let reason = match &ended {
            Ok(()) => "the engine was stopped".to_owned(),
            Err(error) => format!("the engine failed: {error}"),
        };
        self.scheduler.fail_all(&ServeError::engine(reason), &mut self.events);
        self.emit();
        ended
    }

    fn serve(&mut self) -> Result<(), EngineError> {
        let mut messages = Vec::new();
        let mut output = StepOutput::default();
        let mut patience = Duration::ZERO;
        loop {
            if self.mode == Mode::Stopped || self.mode == Mode::Draining && self.scheduler.is_idle() {
                return Ok(());
            }
            self.inbox.take(&mut messages, patience);
            for message in messages.drain(..) {
                self.apply(message);
            }
            self.scheduler.tick(self.started.elapsed(), &mut self.events);
            if self.mode != Mode::Stopped {
                let computed = self.step(&mut output)?;
                patience = if computed { Duration::ZERO } else { self.until_next_deadline() };
            }
            patience = patience.min(self.emit());
        }
    }

    /// `false` when there was nothing to do: only a message or a deadline changes that.
    fn step(&mut self, output: &mut StepOutput) -> Result<bool, EngineError> {
        let Some(plan) = self.scheduler.schedule(self.started.elapsed()) else {
            self.scheduler.check_not_stuck()?;
            return Ok(false);
        };
        let ticket = self.backend.submit(plan)?;
        self.backend.collect(ticket, output)?;
        self.scheduler.complete(self.started.elapsed(), output, &mut self.events)?;
        Ok(true)
    }

    fn until_next_deadline(&self) -> Duration {
        let deadline = self.scheduler.next_deadline();
        deadline.map_or(Duration::MAX, |at| at.saturating_sub(self.started.elapsed()).max(Duration::from_millis(1)))
    }

    fn apply(&mut self, message: Message) {
        match message {
            Message::Open(session, outbox) => self.outboxes.open(session, outbox),
            Message::Command(session, command) => match command.opens() {
                Some((request, attempt)) if self.mode != Mode::Serving => {
                    let event = EngineEvent::Failed(FailedEvent { request, attempt, error: refuse_while_draining() });
                    self.events.push(SessionEvent { session, event });
                }
                _ => self.scheduler.apply(self.started.elapsed(), session, command, &mut self.events),
            },
            Message::Close(session) => self.close(session),
            Message::Landed(reservation) => self.scheduler.landed(self.started.elapsed(), reservation),
            Message::Exported(export, outcome) => self.scheduler.exported(export, outcome, &mut self.events),
            // Nobody to tell is fine.
            Message::Audit(answer) => drop(answer.send(self.scheduler.audit())),
            Message::Drain if self.mode == Mode::Serving => self.mode = Mode::Draining,
            Message::Drain => {}
            Message::Stop => self.mode = Mode::Stopped,
        }
    }

    fn close(&mut self, session: SessionId) {
        self.scheduler.close_session(session);
        self.outboxes.close(session);
    }

    /// Returns how long to wait at most before the next round.
    fn emit(&mut self) -> Duration {
        let mut report = self.scheduler.report();
        self.backend.count_shards(&mut report.shards);
        // Before the replies: who has read one finds a report that is at least as new.
        self.report.send_replace(report.clone());
        let news = News {
            report,
            shares: self.scheduler.shares(),
            now: self.started.elapsed(),
            idle: self.scheduler.is_idle(),
        };
        let emitted = self.outboxes.emit(&mut self.events, &news);
        for &session in &emitted.gone {
            self.close(session);
        }
        match emitted {
            // What they held is free now.
            Emitted { gone, .. } if !gone.is_empty() => Duration::ZERO,
            Emitted { untold: true, .. } => SILENCE,
            Emitted { .. } => Duration::MAX,
        }
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
