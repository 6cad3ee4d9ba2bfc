//! Where step replies go.

use std::collections::BTreeMap;

use baton_core::{EngineEvent, EngineReport};
use baton_protocol::{SessionId, StepReply};
use tokio::sync::mpsc;

use crate::scheduler::SessionEvent;

/// One session's end of the step loop. Called on the loop's thread, so it must not wait.
pub trait Outbox: Send {
    /// `false` when nobody reads any more: the session is closed then.
    fn deliver(&mut self, reply: StepReply) -> bool;
}

/// Without a bound, so that a slow reader never stops the loop. What can pile up is bounded all the same: a request has at
/// most `choices × max_tokens + 1` events, and a reply without events is sent once when the engine falls idle.
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
    /// The newest report it was sent.
    told: EngineReport,
}

impl Outboxes {
    pub(crate) fn open(&mut self, id: SessionId, outbox: Box<dyn Outbox>) {
        self.sessions.insert(id, Session { outbox, events: Vec::new(), told: EngineReport::default() });
    }

    pub(crate) fn close(&mut self, id: SessionId) {
        self.sessions.remove(&id);
    }

    /// One reply for each session that has events; returns the sessions that nobody reads any more. When the engine falls
    /// `idle` everyone hears of it: nothing else would correct a load that an abort or another session has changed.
    pub(crate) fn emit(&mut self, events: &mut Vec<SessionEvent>, report: &EngineReport, idle: bool) -> Vec<SessionId> {
        for SessionEvent { session, event } in events.drain(..) {
            if let Some(session) = self.sessions.get_mut(&session) {
                session.events.push(event);
            }
        }
        let mut gone = Vec::new();
        for (&id, session) in &mut self.sessions {
            let outdated = (session.told.load, session.told.counters) != (report.load, report.counters);
            if !session.events.is_empty() || idle && outdated {
                session.told = report.clone();
                let events = std::mem::take(&mut session.events);
                if !session.outbox.deliver(StepReply { report: report.clone(), events }) {
                    gone.push(id);
                }
            }
        }
        gone
    }
}
