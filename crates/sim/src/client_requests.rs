//! Open requests of clients with their expected outcome, and counts of the outcomes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use baton_core::{Fault, ServeError};

use crate::clock::lock;
use crate::event_log::{Checker, EventLog};
use crate::log_entry::LogEntry;

pub(crate) struct ClientRequests {
    log: Arc<EventLog>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    open: BTreeMap<u64, Expectation>,
    dead_routers: BTreeSet<u64>,
    stalls_ignored_before: Duration,
    counts: ClientCounts,
}

/// Outcomes of requests.
#[derive(Clone, Copy, Debug, Default)]
pub struct ClientCounts {
    pub served: u64,
    /// Failed requests that no engine could have served.
    pub refused: u64,
    pub failed: u64,
    pub busy: u64,
    /// Requests whose router died.
    pub cut_off: u64,
    /// Requests whose client hung up.
    pub left: u64,
}

/// The failures that a request may end with.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Expectation {
    /// Any failure that has a reason.
    Any,
    /// Only overload, as there are no faults.
    OnlyBusy,
    /// None: the deployment has nothing else to do.
    Success,
}

pub(crate) enum ClientOutcome {
    Served,
    Failed {
        error: ServeError,
        hopeless: bool,
    },
    /// The stream ended before the request because its router has died, or the session.
    CutOff,
    Left,
    Wrong(String),
}

impl ClientRequests {
    pub(crate) fn new(log: Arc<EventLog>) -> Arc<Self> {
        Arc::new(Self { log, state: Mutex::default() })
    }

    pub(crate) fn open(&self, client: u64, expectation: Expectation) {
        lock(&self.state).open.insert(client, expectation);
    }

    pub(crate) fn close(&self, client: u64, ended: ClientOutcome) {
        let mut state = lock(&self.state);
        let expectation = state.open.remove(&client).unwrap_or(Expectation::Any);
        let counts = &mut state.counts;
        let (how, count) = match &ended {
            ClientOutcome::Served => ("served", &mut counts.served),
            ClientOutcome::Failed { hopeless: true, .. } => ("refused", &mut counts.refused),
            ClientOutcome::Failed { error, .. } if error.fault == Fault::Capacity => ("busy", &mut counts.busy),
            ClientOutcome::Failed { .. } | ClientOutcome::Wrong(_) => ("failed", &mut counts.failed),
            ClientOutcome::CutOff => ("cut off", &mut counts.cut_off),
            ClientOutcome::Left => ("left", &mut counts.left),
        };
        *count += 1;
        self.log.record(LogEntry::Ended { client, how });
        match ended {
            ClientOutcome::Wrong(message) => {
                self.log.report_violation(Checker::Stream, format!("client {client}: {message}"))
            }
            ClientOutcome::Failed { error, hopeless: false } => {
                let acceptable = match expectation {
                    Expectation::Any => true,
                    Expectation::OnlyBusy => error.fault == Fault::Capacity,
                    Expectation::Success => false,
                };
                if !acceptable {
                    self.log
                        .report_violation(Checker::Stream, format!("client {client} failed without a reason: {error}"));
                }
            }
            _ => {}
        }
    }

    pub(crate) fn router_died(&self, incarnation: u64) {
        lock(&self.state).dead_routers.insert(incarnation);
    }

    pub(crate) fn is_dead(&self, router_incarnation: u64) -> bool {
        lock(&self.state).dead_routers.contains(&router_incarnation)
    }

    /// A router was suspended: until now its streams stood still for a reason.
    pub(crate) fn ignore_stalls_before(&self, now: Duration) {
        lock(&self.state).stalls_ignored_before = now;
    }

    pub(crate) fn stalls_ignored_before(&self) -> Duration {
        lock(&self.state).stalls_ignored_before
    }

    pub(crate) fn waiting(&self) -> Vec<u64> {
        lock(&self.state).open.keys().copied().collect()
    }

    pub(crate) fn is_empty(&self) -> bool {
        lock(&self.state).open.is_empty()
    }

    pub(crate) fn counts(&self) -> ClientCounts {
        lock(&self.state).counts
    }
}
