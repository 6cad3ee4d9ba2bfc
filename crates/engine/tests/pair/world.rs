//! Two engines, their callers and what the callers hear.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use baton_core::{EngineCounters, RequestId};
use baton_engine::{EngineConfig, Exported, Scheduler, SessionEvent};
use baton_protocol::{Command, SessionId};

use crate::callers::Job;
use crate::fake::{self, FakeModel, Random};
use crate::network::{Answer, Happened, Network, Port};

pub(crate) const ARRIVAL_STEPS: u64 = 300;
pub(crate) const SESSIONS: u64 = 3;

#[derive(Debug, Default)]
pub(crate) struct Totals {
    pub(crate) engines: EngineCounters,
    pub(crate) network: Happened,
    pub(crate) finished: u64,
    pub(crate) migrated: u64,
    pub(crate) aborted: u64,
    pub(crate) refused: u64,
}

pub(crate) struct World {
    pub(crate) random: Random,
    pub(crate) now: Duration,
    pub(crate) nodes: Vec<Node>,
    pub(crate) network: Arc<Mutex<Network>>,
    pub(crate) jobs: BTreeMap<RequestId, Job>,
    /// Commands on their way to an engine.
    pub(crate) posted: Vec<(Duration, usize, SessionId, Command)>,
    pub(crate) next_request: u64,
    /// Requests that ended in this step: what the other engine said in the same step may still come.
    pub(crate) just_ended: BTreeSet<RequestId>,
}

pub(crate) struct Node {
    pub(crate) scheduler: Scheduler,
    pub(crate) model: FakeModel,
    pub(crate) context_tokens: usize,
}

pub(crate) fn simulate(seed: u64, totals: &mut Totals) {
    let mut world = World::new(seed);
    let mut step = 0;
    while step < ARRIVAL_STEPS || !world.jobs.is_empty() {
        world.now = Duration::from_millis(step);
        if step < ARRIVAL_STEPS {
            world.disturb(totals);
        }
        world.step(totals);
        step += 1;
        assert!(step < 60 * ARRIVAL_STEPS, "seed {seed}: {} requests never end", world.jobs.len());
    }
    world.close(seed, totals);
}

impl World {
    fn new(seed: u64) -> Self {
        let mut random = Random(seed);
        let context = random.between(60, 500) as usize;
        let models: Vec<_> = (0..2)
            .map(|_| {
                FakeModel::new(fake::spec(random.between(4, 40) as usize, random.between(1, 12) as usize, context))
            })
            .collect();
        let network = Network::new(seed, models.iter().map(FakeModel::kv).collect());
        let prefix_cache = random.chance(60);
        let nodes = models.into_iter().enumerate().map(|(node, model)| {
            let config = EngineConfig {
                prefix_cache,
                step_tokens: [7, 32, 100, 512][random.below(4) as usize],
                max_running: random.between(1, 16) as usize,
                max_waiting: random.between(4, 30) as usize,
                landing_timeout: Duration::from_millis(random.between(5, 60)),
                delivery_timeout: Duration::from_millis(random.between(20, 200)),
                ..EngineConfig::default()
            };
            let port = Port { node, network: Arc::clone(&network) };
            let scheduler = Scheduler::new(&config, baton_compute::Backend::spec(&model), Box::new(port)).unwrap();
            Node { context_tokens: scheduler.context_tokens(), scheduler, model }
        });
        let nodes = nodes.collect();
        let (now, jobs, posted) = (Duration::ZERO, BTreeMap::new(), Vec::new());
        Self { random, now, nodes, network, jobs, posted, next_request: 0, just_ended: BTreeSet::new() }
    }

    fn disturb(&mut self, totals: &mut Totals) {
        while self.random.chance(15) {
            self.arrive();
        }
        if self.random.chance(2)
            && let Some(id) = self.any_job()
        {
            self.jobs.remove(&id);
            for node in 0..2 {
                self.abort(node, id);
            }
            totals.aborted += 1;
        }
        if self.random.below(400) == 0 {
            let session = SessionId(self.random.below(SESSIONS));
            self.jobs.retain(|_, job| job.session != session);
            self.posted.retain(|(_, _, of, _)| *of != session);
            self.nodes.iter_mut().for_each(|node| node.scheduler.close_session(session));
        }
    }

    fn any_job(&mut self) -> Option<RequestId> {
        let at = self.random.below(self.jobs.len().max(1) as u64) as usize;
        self.jobs.keys().nth(at).copied()
    }

    pub(crate) fn abort(&mut self, node: usize, request: RequestId) {
        self.posted.retain(|(.., command)| command.opens().is_none_or(|(of, _)| of != request));
        for session in 0..SESSIONS {
            self.nodes[node].scheduler.abort(SessionId(session), request);
        }
    }

    fn step(&mut self, totals: &mut Totals) {
        let mut events: Vec<(usize, SessionEvent)> = Vec::new();
        let mut heard = Vec::new();
        let answers = self.network.lock().unwrap().advance(self.now);
        for (node, answers) in answers.into_iter().enumerate() {
            for answer in answers {
                match answer {
                    Answer::Landed(id) => self.nodes[node].scheduler.landed(self.now, id),
                    Answer::Exported(id, outcome) => {
                        let outcome = outcome.map(|verified_tokens| Exported { verified_tokens, damaged: false });
                        self.nodes[node].scheduler.exported(id, outcome, &mut heard);
                    }
                }
            }
            events.extend(heard.drain(..).map(|event| (node, event)));
        }
        self.posted.sort_by_key(|(due, ..)| *due);
        let later = self.posted.partition_point(|(due, ..)| *due <= self.now);
        for (_, node, session, command) in self.posted.drain(..later) {
            self.nodes[node].scheduler.apply(self.now, session, command, &mut heard);
            events.extend(heard.drain(..).map(|event| (node, event)));
        }
        for (at, node) in self.nodes.iter_mut().enumerate() {
            node.step(self.now, &mut heard);
            events.extend(heard.drain(..).map(|event| (at, event)));
        }
        self.just_ended.clear();
        for (node, event) in events {
            self.hear(node, event, totals);
        }
    }

    /// When all callers are gone nothing may be left.
    fn close(&mut self, seed: u64, totals: &mut Totals) {
        self.posted.clear();
        for node in &mut self.nodes {
            (0..SESSIONS).for_each(|session| node.scheduler.close_session(SessionId(session)));
            while !node.scheduler.is_idle() {
                node.step(self.now, &mut Vec::new());
            }
            assert_eq!(node.model.slots_in_use(), 0, "seed {seed}: slots left over");
            node.scheduler.audit().unwrap();
            let report = node.scheduler.report();
            let load = report.load;
            assert_eq!(load.pages_free + load.pages_cached, load.pages_total, "seed {seed}");
            assert_eq!((load.reservations, load.reserved_pages, load.exports), (0, 0, 0), "seed {seed}");
            totals.engines.add(&report.counters);
        }
        let network = self.network.lock().unwrap();
        assert!(network.is_quiet(), "seed {seed}: reservations or fences left over");
        totals.network.add(&network.happened);
    }
}

impl Node {
    fn step(&mut self, now: Duration, events: &mut Vec<SessionEvent>) {
        self.scheduler.tick(now, events);
        match self.scheduler.schedule(now) {
            Some(plan) => {
                let mut output = self.model.run(plan);
                self.scheduler.complete(now, &mut output, events).unwrap();
            }
            None => self.scheduler.check_not_stuck().unwrap(),
        }
        self.scheduler.audit().unwrap();
        assert!(self.scheduler.next_deadline().is_none_or(|at| at > now), "a deadline was missed");
        let load = self.scheduler.report().load;
        assert!(load.reserved_pages <= load.pages_total / 2);
    }
}

trait Sum {
    fn add(&mut self, other: &Self);
}

impl Sum for EngineCounters {
    fn add(&mut self, other: &Self) {
        self.handoffs_received += other.handoffs_received;
        self.received_tokens += other.received_tokens;
        self.handoffs_sent += other.handoffs_sent;
        self.landing_timeouts += other.landing_timeouts;
        self.leases_expired += other.leases_expired;
        self.preemptions += other.preemptions;
        self.evicted_pages += other.evicted_pages;
    }
}

impl Sum for Happened {
    fn add(&mut self, other: &Self) {
        self.stale += other.stale;
        self.damaged += other.damaged;
        self.too_late += other.too_late;
        self.repeated += other.repeated;
        self.broken += other.broken;
    }
}
