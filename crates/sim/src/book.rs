//! Open requests of clients with their expected outcome, and counts of the outcomes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use baton_core::{Fault, ServeError};

use crate::clock::lock;
use crate::happening::Happening;
use crate::journal::{Checker, Journal};

pub(crate) struct Book {
    journal: Arc<Journal>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    open: BTreeMap<u64, Expectation>,
    dead_routers: BTreeSet<u64>,
    stalls_excused_at: Duration,
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

pub(crate) enum Ended {
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

impl Book {
    pub(crate) fn new(journal: Arc<Journal>) -> Arc<Self> {
        Arc::new(Self { journal, state: Mutex::default() })
    }

    pub(crate) fn open(&self, client: u64, expectation: Expectation) {
        lock(&self.state).open.insert(client, expectation);
    }

    pub(crate) fn close(&self, client: u64, ended: Ended) {
        let mut state = lock(&self.state);
        let expectation = state.open.remove(&client).unwrap_or(Expectation::Any);
        let counts = &mut state.counts;
        let (how, count) = match &ended {
            Ended::Served => ("served", &mut counts.served),
            Ended::Failed { hopeless: true, .. } => ("refused", &mut counts.refused),
            Ended::Failed { error, .. } if error.fault == Fault::Capacity => ("busy", &mut counts.busy),
            Ended::Failed { .. } | Ended::Wrong(_) => ("failed", &mut counts.failed),
            Ended::CutOff => ("cut off", &mut counts.cut_off),
            Ended::Left => ("left", &mut counts.left),
        };
        *count += 1;
        self.journal.note(Happening::Ended { client, how });
        match ended {
            Ended::Wrong(message) => self.journal.blame(Checker::Stream, format!("client {client}: {message}")),
            Ended::Failed { error, hopeless: false } => {
                let acceptable = match expectation {
                    Expectation::Any => true,
                    Expectation::OnlyBusy => error.fault == Fault::Capacity,
                    Expectation::Success => false,
                };
                if !acceptable {
                    self.journal.blame(Checker::Stream, format!("client {client} failed without a reason: {error}"));
                }
            }
            _ => {}
        }
    }

    pub(crate) fn router_died(&self, life: u64) {
        lock(&self.state).dead_routers.insert(life);
    }

    pub(crate) fn is_dead(&self, router_life: u64) -> bool {
        lock(&self.state).dead_routers.contains(&router_life)
    }

    /// A router was suspended: until now its streams stood still for a reason.
    pub(crate) fn excuse_stalls(&self, now: Duration) {
        lock(&self.state).stalls_excused_at = now;
    }

    pub(crate) fn stalls_excused_at(&self) -> Duration {
        lock(&self.state).stalls_excused_at
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
