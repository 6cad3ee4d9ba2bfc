//! The peers that have sessions with all engines: router processes, and scripts that make the three calls without a router.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use baton_router::{
    Disagg, DispatchConfig, Dispatcher, EngineId, Fleet, HeartbeatMonitor, InFlight, LeastLoaded, PrefixAware,
    RoundRobin, SessionAffinity, Strategy,
};

#[path = "../../router/examples/custom_strategy/strategy.rs"]
mod custom_strategy;
use custom_strategy::LongPromptsApart;

use crate::clock::{Clock, lock};
use crate::event::Event;
use crate::executor::{Owner, SimRuntime, Spawner};
use crate::hang_scenario::LIMIT;
use crate::ids::WireId;
use crate::scenario::{RouterSetup, Scenario, StrategyChoice};
use crate::script::Sessions;
use crate::session::Session;

pub(crate) struct Peer {
    /// Unique per start: a restarted router has another number.
    pub(crate) incarnation: u64,
    pub(crate) kind: PeerKind,
    pub(crate) wires: Vec<Option<WireId>>,
    /// Where heartbeats are sent.
    pub(crate) monitor: Option<HeartbeatMonitor>,
    /// While it is suspended: what has arrived.
    pub(crate) suspended: Option<VecDeque<Event>>,
    /// It has not been suspended since.
    pub(crate) running_since: Duration,
}

pub(crate) enum PeerKind {
    Router { fleet: Arc<Fleet>, dispatcher: Arc<Dispatcher> },
    Scripts(Arc<Sessions>),
}

impl Peer {
    pub(crate) fn router(
        incarnation: u64,
        setup: &RouterSetup,
        scenario: &Scenario,
        clock: Arc<Clock>,
        spawner: Arc<Spawner>,
    ) -> Self {
        let engines = scenario.engines.len();
        let names = scenario.engines.iter().enumerate().map(|(at, engine)| (format!("engine-{at}"), engine.role));
        let fleet = Arc::new(Fleet::new(names));
        let config =
            DispatchConfig { max_in_flight: setup.max_in_flight, retry: setup.retry.clone(), seed: incarnation };
        let runtime = Arc::new(SimRuntime { clock, spawner, owner: Owner::Router(incarnation) });
        let monitor = scenario.hangs.map(|_| HeartbeatMonitor::new(Arc::clone(&fleet), LIMIT));
        let dispatcher = Dispatcher::with_runtime(Arc::clone(&fleet), strategy(setup.strategy), config, runtime);
        let kind = PeerKind::Router { fleet, dispatcher: Arc::new(dispatcher) };
        Self { monitor, ..Self::new(incarnation, kind, engines) }
    }

    pub(crate) fn scripts(incarnation: u64, engines: usize) -> Self {
        let sessions = Arc::new(Sessions::new(vec![None; engines]));
        Self::new(incarnation, PeerKind::Scripts(sessions), engines)
    }

    fn new(incarnation: u64, kind: PeerKind, engines: usize) -> Self {
        let (monitor, suspended) = (None, None);
        Self { incarnation, kind, wires: vec![None; engines], monitor, suspended, running_since: Duration::ZERO }
    }

    pub(crate) fn connected(&mut self, engine: usize, wire: WireId, session: Arc<Session>) {
        self.wires[engine] = Some(wire);
        match &self.kind {
            PeerKind::Router { fleet, .. } => fleet.engine_ready(EngineId(engine), session),
            PeerKind::Scripts(sessions) => lock(sessions)[engine] = Some(session),
        }
    }

    pub(crate) fn lost(&mut self, engine: usize) {
        self.wires[engine] = None;
        match &self.kind {
            PeerKind::Router { fleet, .. } => {
                fleet.engine_down(EngineId(engine));
                fleet.engine_restarting(EngineId(engine));
            }
            PeerKind::Scripts(sessions) => lock(sessions)[engine] = None,
        }
    }

    /// Resources that are still held in an idle deployment.
    pub(crate) fn leftovers(&self) -> Vec<String> {
        let PeerKind::Router { fleet, dispatcher } = &self.kind else { return Vec::new() };
        let mut left = Vec::new();
        let open = dispatcher.requests_in_flight();
        if open > 0 {
            left.push(format!("router {} has {open} requests in flight", self.incarnation));
        }
        for engine in fleet.status() {
            let load = engine.report.load;
            if engine.in_flight != InFlight::default() {
                left.push(format!("router {} holds {:?} on {}", self.incarnation, engine.in_flight, engine.name));
            }
            if (load.running, load.waiting, load.pending_prefill_tokens) != (0, 0, 0) {
                left.push(format!("router {} believes that the idle {} has {load:?}", self.incarnation, engine.name));
            }
        }
        left
    }
}

pub(crate) fn strategy(choice: StrategyChoice) -> Arc<dyn Strategy> {
    match choice {
        StrategyChoice::RoundRobin => Arc::new(RoundRobin::default()),
        StrategyChoice::LeastLoaded => Arc::new(LeastLoaded),
        StrategyChoice::PrefixAware { load_slack } => Arc::new(PrefixAware::new(load_slack)),
        StrategyChoice::SessionAffinity { load_slack } => Arc::new(SessionAffinity::new(load_slack)),
        StrategyChoice::Disagg { pd_balance_factor } => Arc::new(Disagg::new(pd_balance_factor)),
        StrategyChoice::LongPromptsApart { long_tokens } => Arc::new(LongPromptsApart { long_tokens }),
    }
}
