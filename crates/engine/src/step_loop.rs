//! The engine's only loop and the only place that changes its state: commands, then schedule → submit → collect → emit.

use std::sync::Arc;
use std::time::Instant;

use baton_compute::{Backend, StepOutput};
use baton_core::{EngineEvent, EngineReport, FailedEvent, Fault, Retry, ServeError};
use baton_protocol::SessionId;
use tokio::sync::watch;

use crate::error::EngineError;
use crate::inbox::{Inbox, Message};
use crate::outbox::Outboxes;
use crate::scheduler::{Scheduler, SessionEvent};

pub(crate) struct StepLoop {
    pub(crate) backend: Box<dyn Backend>,
    pub(crate) scheduler: Scheduler,
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
        let started = Instant::now();
        let mut messages = Vec::new();
        let mut output = StepOutput::default();
        loop {
            let idle = self.scheduler.is_idle();
            if self.mode == Mode::Stopped || self.mode == Mode::Draining && idle {
                return Ok(());
            }
            self.inbox.take(&mut messages, idle);
            for message in messages.drain(..) {
                self.apply(message);
            }
            if self.mode != Mode::Stopped {
                self.step(started, &mut output)?;
            }
            self.emit();
        }
    }

    fn step(&mut self, started: Instant, output: &mut StepOutput) -> Result<(), EngineError> {
        let Some(plan) = self.scheduler.schedule(started.elapsed()) else {
            return self.scheduler.check_not_stuck();
        };
        let ticket = self.backend.submit(plan)?;
        self.backend.collect(ticket, output)?;
        self.scheduler.complete(started.elapsed(), output, &mut self.events)
    }

    fn apply(&mut self, message: Message) {
        match message {
            Message::Open(session, outbox) => self.outboxes.open(session, outbox),
            Message::Command(session, command) => match command.opens() {
                Some((request, attempt)) if self.mode != Mode::Serving => {
                    let event = EngineEvent::Failed(FailedEvent { request, attempt, error: refuse_while_draining() });
                    self.events.push(SessionEvent { session, event });
                }
                _ => self.scheduler.apply(session, command, &mut self.events),
            },
            Message::Close(session) => self.close(session),
            Message::Drain if self.mode == Mode::Serving => self.mode = Mode::Draining,
            Message::Drain => {}
            Message::Stop => self.mode = Mode::Stopped,
        }
    }

    fn close(&mut self, session: SessionId) {
        self.scheduler.close_session(session);
        self.outboxes.close(session);
    }

    fn emit(&mut self) {
        let report = self.scheduler.report();
        self.report.send_replace(report);
        let idle = self.scheduler.is_idle();
        for session in self.outboxes.emit(&mut self.events, report, idle) {
            self.close(session);
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
