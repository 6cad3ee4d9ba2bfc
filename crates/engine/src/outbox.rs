//! Where step replies go.

use std::collections::BTreeMap;
use std::time::Duration;

use baton_core::{EngineCounters, EngineEvent, EngineLoad, EngineReport, SessionLoad};
use baton_protocol::{SessionId, StepReply};
use tokio::sync::mpsc;

use crate::scheduler::SessionEvent;

/// How long a router may not hear what others do to an engine that it shares with them.
pub(crate) const SILENCE: Duration = Duration::from_millis(100);

/// One session's end of the step loop. Called on the loop's thread, so it must not wait.
pub trait Outbox: Send {
    /// `false` when nobody reads any more: the session is closed then.
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
    /// What it was told last, and when.
    told: (EngineLoad, EngineCounters),
    told_at: Duration,
}

/// What there is to say after a step, besides events.
pub(crate) struct News {
    pub(crate) report: EngineReport,
    pub(crate) shares: BTreeMap<SessionId, SessionLoad>,
    pub(crate) now: Duration,
    pub(crate) idle: bool,
}

#[derive(Default)]
pub(crate) struct Emitted {
    /// Sessions that nobody reads any more.
    pub(crate) gone: Vec<SessionId>,
    /// Somebody has yet to hear the news: emit again after [`SILENCE`].
    pub(crate) untold: bool,
}

impl Outboxes {
    pub(crate) fn open(&mut self, id: SessionId, outbox: Box<dyn Outbox>) {
        self.sessions
            .insert(id, Session { outbox, events: Vec::new(), told: Default::default(), told_at: Duration::ZERO });
    }

    pub(crate) fn close(&mut self, id: SessionId) {
        self.sessions.remove(&id);
    }

    pub(crate) fn is_open(&self, id: SessionId) -> bool {
        self.sessions.contains_key(&id)
    }

    /// One reply for each session that has events. Others hear of a load that an abort or another session has changed when
    /// the engine falls idle and, while it is not, every so often.
    pub(crate) fn emit(&mut self, events: &mut Vec<SessionEvent>, news: &News) -> Emitted {
        for SessionEvent { session, event } in events.drain(..) {
            if let Some(session) = self.sessions.get_mut(&session) {
                session.events.push(event);
            }
        }
        let mut emitted = Emitted::default();
        for (&id, session) in &mut self.sessions {
            let outdated = session.told != (news.report.load, news.report.counters);
            let due = news.idle || news.now >= session.told_at + SILENCE;
            if !session.events.is_empty() || outdated && due {
                (session.told, session.told_at) = ((news.report.load, news.report.counters), news.now);
                let own = news.shares.get(&id).copied().unwrap_or_default();
                let report = EngineReport { own, ..news.report.clone() };
                let events = std::mem::take(&mut session.events);
                if !session.outbox.deliver(StepReply { report, events }) {
                    emitted.gone.push(id);
                }
            } else if outdated {
                emitted.untold = true;
            }
        }
        emitted
    }
}
