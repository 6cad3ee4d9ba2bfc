//! The engine's only loop and the only place that changes its state: commands, then schedule → submit → collect → emit.

use std::sync::Arc;
use std::time::{Duration, Instant};

use baton_core::{EngineReport, ServeError};
use tokio::sync::watch;

use crate::error::EngineError;
use crate::inbox::{Inbox, Message};
use crate::stepper::Stepper;

pub(crate) struct StepLoop {
    pub(crate) stepper: Stepper,
    /// Zero of the time that the scheduler sees.
    pub(crate) started: Instant,
    pub(crate) inbox: Arc<Inbox>,
    pub(crate) report: watch::Sender<EngineReport>,
}

impl StepLoop {
    /// Returns when stopped, or with the error that ended the engine. All requests have been answered then.
    pub(crate) fn run(mut self) -> Result<(), EngineError> {
        let ended = self.serve();
        let reason = match &ended {
            Ok(()) => "the engine was stopped".to_owned(),
            Err(error) => format!("the engine failed: {error}"),
        };
        self.stepper.fail_all(&ServeError::engine(reason));
        self.emit();
        ended
    }

    fn serve(&mut self) -> Result<(), EngineError> {
        let mut messages = Vec::new();
        let mut patience = Duration::ZERO;
        while !self.stepper.has_ended() {
            self.inbox.take(&mut messages, patience);
            for message in messages.drain(..) {
                self.apply(message);
            }
            while self.stepper.begin_step(self.now())? {}
            let computed = self.stepper.end_step(|| self.started.elapsed())?;
            patience = if computed { Duration::ZERO } else { self.until_next_deadline() };
            patience = patience.min(self.emit());
        }
        Ok(())
    }

    fn now(&self) -> Duration {
        self.started.elapsed()
    }

    fn until_next_deadline(&self) -> Duration {
        let deadline = self.stepper.next_deadline();
        deadline.map_or(Duration::MAX, |at| at.saturating_sub(self.now()).max(Duration::from_millis(1)))
    }

    fn apply(&mut self, message: Message) {
        let now = self.now();
        match message {
            Message::Open(session, outbox) => self.stepper.open(session, outbox),
            Message::Command(session, command, at) => {
                let request = command.opens().map(|(request, _)| request);
                self.stepper.command(now, session, command);
                if let Some(request) = request {
                    self.stepper.arrived(session, request, at.saturating_duration_since(self.started));
                }
            }
            Message::Close(session) => self.stepper.close(session),
            Message::Landed(reservation, times) => self.stepper.landed(now, reservation, times),
            Message::Revoked(reservation, verified_tokens) => self.stepper.revoked(reservation, verified_tokens),
            Message::Exported(export, outcome) => self.stepper.exported(export, outcome),
            // The caller may be gone.
            Message::Audit(answer) => drop(answer.send(self.stepper.audit())),
            Message::Drain => self.stepper.drain(),
            Message::Stop => self.stepper.stop(),
        }
    }

    /// Returns how long to wait at most before the next round.
    fn emit(&mut self) -> Duration {
        let report = self.stepper.report();
        // Before the replies: who has read one finds a report that is at least as new.
        self.report.send_replace(report.clone());
        self.stepper.emit(self.now(), report)
    }
}
