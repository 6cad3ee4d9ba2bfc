//! Where step replies go.

use std::collections::BTreeMap;
use std::time::Duration;

use baton_core::{EngineCounters, EngineEvent, EngineLoad, EngineReport, SessionLoad};
use baton_protocol::{SessionId, StepReply};
use tokio::sync::mpsc;

use crate::scheduler::SessionEvent;

/// Longest until a busy engine's changed load, which other sessions may have caused, is reported to a session without events.
pub(crate) const REPORT_INTERVAL: Duration = Duration::from_millis(100);

/// One session's end of the step loop. Called on the loop's thread, so it must not wait.
pub trait Outbox: Send {
    /// `false` when the reader is gone: the session is closed then.
    fn deliver(&mut self, reply: StepReply) -> bool;
}

/// Without a bound, so that a slow reader never stops the loop. What can pile up is bounded all the same: a request has at
/// most `choices × max_tokens + 1` events, replies without events are rare, and a session that takes nothing for long is
/// ended by its connection.
impl Outbox for mpsc::UnboundedSender<StepReply> {
    fn deliver(&mut self, reply: StepReply) -> bool {
        self.send(reply).is_ok()
    }
}

#[derive(Default)]
pub(crate) struct Outboxes {
    sessions: BTreeMap<SessionId, Session>,
}

struct Session {
    outbox: Box<dyn Outbox>,
    /// For the reply of the present step.
    events: Vec<EngineEvent>,
    /// What was reported to it last, and when.
    reported: (EngineLoad, EngineCounters),
    reported_at: Duration,
}

/// The engine after a step: what replies carry besides events.
pub(crate) struct Status {
    pub(crate) report: EngineReport,
    pub(crate) session_loads: BTreeMap<SessionId, SessionLoad>,
    pub(crate) now: Duration,
    pub(crate) idle: bool,
}

#[derive(Default)]
pub(crate) struct Emitted {
    /// Sessions whose reader is gone.
    pub(crate) gone: Vec<SessionId>,
    /// A session has not been sent the newest load: emit again after [`REPORT_INTERVAL`].
    pub(crate) unreported: bool,
}

impl Outboxes {
    pub(crate) fn open(&mut self, id: SessionId, outbox: Box<dyn Outbox>) {
        self.sessions.insert(
            id,
            Session { outbox, events: Vec::new(), reported: Default::default(), reported_at: Duration::ZERO },
        );
    }

    pub(crate) fn close(&mut self, id: SessionId) {
        self.sessions.remove(&id);
    }

    pub(crate) fn is_open(&self, id: SessionId) -> bool {
        self.sessions.contains_key(&id)
    }

    /// One reply for each session that has events. A load that an abort or another session has changed is reported
    /// to the others when the engine falls idle and, while it is not, every [`REPORT_INTERVAL`].
    pub(crate) fn emit(&mut self, events: &mut Vec<SessionEvent>, status: &Status) -> Emitted {
        for SessionEvent { session, event } in events.drain(..) {
            if let Some(session) = self.sessions.get_mut(&session) {
                session.events.push(event);
            }
        }
        let mut emitted = Emitted::default();
        for (&id, session) in &mut self.sessions {
            let outdated = session.reported != (status.report.load, status.report.counters);
            let due = status.idle || status.now >= session.reported_at + REPORT_INTERVAL;
            if !session.events.is_empty() || outdated && due {
                (session.reported, session.reported_at) = ((status.report.load, status.report.counters), status.now);
                let own = status.session_loads.get(&id).copied().unwrap_or_default();
                let report = EngineReport { own, ..status.report.clone() };
                let events = std::mem::take(&mut session.events);
                if !session.outbox.deliver(StepReply { report, events }) {
                    emitted.gone.push(id);
                }
            } else if outdated {
                emitted.unreported = true;
            }
        }
        emitted
    }
}
