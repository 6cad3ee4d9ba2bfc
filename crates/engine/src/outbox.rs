//! Where step replies go.

use std::collections::BTreeMap;
use std::time::Duration;

use baton_core::{CacheEvent, CacheUpdate, EngineCounters, EngineEvent, EngineLoad, EngineReport, SessionLoad};
use baton_protocol::{SessionId, StepReply};
use tokio::sync::mpsc;

use crate::cache_feed::CacheFeed;
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
    /// While it follows the prefix cache.
    cache: Option<CacheFeed>,
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
        let (events, cache) = (Vec::new(), None);
        let (reported, reported_at) = (Default::default(), Duration::ZERO);
        self.sessions.insert(id, Session { outbox, events, cache, reported, reported_at });
    }

    pub(crate) fn close(&mut self, id: SessionId) {
        self.sessions.remove(&id);
    }

    pub(crate) fn is_open(&self, id: SessionId) -> bool {
        self.sessions.contains_key(&id)
    }

    /// The session gets what the prefix cache holds, from the beginning, with the next reply.
    pub(crate) fn follow_cache(&mut self, id: SessionId) {
        if let Some(session) = self.sessions.get_mut(&id) {
            session.cache.get_or_insert_default().begin_anew();
        }
    }

    pub(crate) fn follows_cache(&self) -> bool {
        self.sessions.values().any(|session| session.cache.is_some())
    }

    pub(crate) fn needs_cache_snapshot(&self) -> bool {
        self.sessions.values().filter_map(|session| session.cache.as_ref()).any(CacheFeed::needs_snapshot)
    }

    pub(crate) fn cache_changed(&mut self, changes: &CacheUpdate) {
        for feed in self.sessions.values_mut().filter_map(|session| session.cache.as_mut()) {
            feed.changed(changes.first, &changes.events);
        }
    }

    /// For the sessions that need one.
    pub(crate) fn cache_snapshot(&mut self, snapshot: &[CacheEvent]) {
        for feed in self.sessions.values_mut().filter_map(|session| session.cache.as_mut()) {
            feed.fill(snapshot);
        }
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
            let cache_changed = session.cache.as_ref().is_some_and(CacheFeed::has_changes);
            let outdated = cache_changed || session.reported != (status.report.load, status.report.counters);
            let has_snapshot = session.cache.as_ref().is_some_and(CacheFeed::has_snapshot);
            let due = status.idle || status.now >= session.reported_at + REPORT_INTERVAL;
            if !session.events.is_empty() || has_snapshot || outdated && due {
                (session.reported, session.reported_at) = ((status.report.load, status.report.counters), status.now);
                let own = status.session_loads.get(&id).copied().unwrap_or_default();
                let report = EngineReport { own, ..status.report.clone() };
                if !session.deliver(report) {
                    emitted.gone.push(id);
                }
            } else if outdated {
                emitted.unreported = true;
            }
        }
        emitted
    }
}

impl Session {
    /// Events come last: who has read them finds the prefix cache as it was when they were made.
    fn deliver(&mut self, report: EngineReport) -> bool {
        let mut updates: Vec<_> = self.cache.as_mut().map(CacheFeed::take).into_iter().flatten().collect();
        let last = updates.pop();
        for update in updates {
            let reply = StepReply { report: report.clone(), events: Vec::new(), cache: Some(update) };
            if !self.outbox.deliver(reply) {
                return false;
            }
        }
        self.outbox.deliver(StepReply { report, events: std::mem::take(&mut self.events), cache: last })
    }
}
