//! Runs one seed and returns its outcome or failure.

use std::fmt;
use std::sync::Arc;

use baton_router::RouterCounters;

use crate::client_requests::ClientRequests;
use crate::clock::Clock;
use crate::event_log::{EventLog, Violation};
use crate::executor::Executor;
use crate::fabric::Fabric;
use crate::mutation::Mutation;
use crate::peer::PeerKind;
use crate::random::Random;
use crate::scenario::Scenario;
use crate::totals::{Past, Sum, Totals};
use crate::world::{Phase, World};

pub struct Outcome {
    /// Hash over all events in order.
    pub log_hash: u64,
    pub totals: Totals,
}

/// A broken rule, with the last events before it.
pub struct Failure {
    pub seed: u64,
    pub mutation: Option<Mutation>,
    pub violation: Violation,
    pub log_hash: u64,
    pub log_tail: Vec<String>,
}

/// A seed to run, with an optional planted bug.
#[derive(Clone, Copy, Debug)]
pub struct Run {
    pub seed: u64,
    pub mutation: Option<Mutation>,
    /// Of every engine; `None` leaves it to the seed, engine by engine.
    pub steps_in_flight: Option<usize>,
    /// Of the event log that a failure shows, counted from its end.
    pub log_lines: usize,
}

impl Run {
    pub fn of(seed: u64) -> Self {
        Self { seed, mutation: None, steps_in_flight: None, log_lines: 100 }
    }

    pub fn verdict(self) -> Result<Outcome, Box<Failure>> {
        let Self { seed, mutation, .. } = self;
        let _announce = Announce(seed);
        let mut world = World::new(self);
        world.run();
        let log_hash = world.log.hash();
        match world.log.violation() {
            None => Ok(Outcome { log_hash, totals: world.totals() }),
            Some(violation) => {
                Err(Box::new(Failure { seed, mutation, violation, log_hash, log_tail: world.log.last_entries() }))
            }
        }
    }
}

impl World {
    fn new(Run { seed, mutation, steps_in_flight, log_lines }: Run) -> Self {
        let mut random = Random::new(seed);
        let mut scenario = Scenario::of(seed, &mut random.fork());
        for engine in &mut scenario.engines {
            engine.steps_in_flight = steps_in_flight.unwrap_or(engine.steps_in_flight);
        }
        let clock = Arc::new(Clock::default());
        let log = Arc::new(EventLog::new(Arc::clone(&clock), log_lines));
        let requests = ClientRequests::new(Arc::clone(&log));
        let fabric = Fabric::new(Arc::clone(&clock), Arc::clone(&log), random.fork(), scenario.transfers, mutation);
        let (engines, peers) = (scenario.engines.len(), scenario.routers.len() + 1);
        Self {
            executor: Executor::new(random.fork()),
            scenario,
            random,
            clock,
            log,
            requests,
            fabric,
            mutation,
            processes: (0..engines).map(|_| None).collect(),
            peers: (0..peers).map(|_| None).collect(),
            connections: Default::default(),
            incarnations: 0,
            next_wire: 0,
            next_client: 1,
            phase: Phase::Faults,
            past: Past::default(),
        }
    }

    fn totals(&self) -> Totals {
        let mut engines = self.past.engines;
        let mut hangs = self.past.hangs;
        for process in self.processes.iter().flatten() {
            engines.add(&process.report.counters);
            hangs.slow_steps += process.progress.slow_steps;
        }
        Totals {
            clients: self.requests.counts(),
            engines,
            routers: self.router_counters(),
            transfers: self.fabric.counts(),
            faults: self.past.faults,
            changes: self.past.changes,
            hangs,
            cache_updates_lost: self.cache_updates_lost(),
        }
    }

    /// Counters of all routers, restarted ones included.
    pub(crate) fn router_counters(&self) -> RouterCounters {
        let mut total = self.past.routers;
        for peer in self.peers.iter().flatten() {
            if let PeerKind::Router { dispatcher, .. } = &peer.kind {
                total.add(&dispatcher.counters());
            }
        }
        total
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for line in &self.log_tail {
            writeln!(f, "{line}")?;
        }
        writeln!(f, "\nseed {} broke a rule: {}", self.seed, self.violation)?;
        write!(
            f,
            "replay: BATON_SIM_SEED={} cargo test -p baton-sim one_seed (BATON_SIM_LOG=10000 for more of the log)",
            self.seed
        )
    }
}

impl fmt::Debug for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Code under test may panic: then the seed must still be known.
struct Announce(u64);

impl Drop for Announce {
    #[allow(clippy::print_stderr, reason = "the last words of a test that panics")]
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("this was seed {}", self.0);
        }
    }
}
