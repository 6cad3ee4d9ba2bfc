//! The peers that have sessions with all engines: router processes, and scripts that make the three calls without a router.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use baton_router::{
    Disagg, DispatchConfig, Dispatcher, EngineId, Fleet, HeartbeatMonitor, InFlight, LeastLoaded, RoundRobin, Strategy,
};

use crate::clock::{Clock, lock};
use crate::executor::{Owner, SimRuntime, Spawner};
use crate::hangs::LIMIT;
#[path = "../../router/examples/custom_strategy/strategy.rs"]
mod custom_strategy;
use crate::script::Sessions;
use crate::session::Session;
use crate::weather::{RouterSetUp, StrategyChoice, Weather};
use crate::wire::WireId;
use crate::world::Event;
use custom_strategy::LongPromptsApart;

pub(crate) struct Peer {
    /// Unique per start: a restarted router has another number.
    pub(crate) life: u64,
    pub(crate) kind: PeerKind,
    pub(crate) wires: Vec<Option<WireId>>,
    /// Where heartbeats are sent.
    pub(crate) monitor: Option<HeartbeatMonitor>,
    /// While it is suspended: what has arrived.
    pub(crate) suspended: Option<VecDeque<Event>>,
    /// It has not been suspended since.
    pub(crate) attentive_since: Duration,
}

pub(crate) enum PeerKind {
    Router { fleet: Arc<Fleet>, dispatcher: Arc<Dispatcher> },
    Scripts(Arc<Sessions>),
}

impl Peer {
    pub(crate) fn router(
        life: u64,
        set_up: &RouterSetUp,
        weather: &Weather,
        clock: Arc<Clock>,
        spawner: Arc<Spawner>,
    ) -> Self {
        let engines = weather.engines.len();
        let names = weather.engines.iter().enumerate().map(|(at, engine)| (format!("engine-{at}"), engine.role));
        let fleet = Arc::new(Fleet::new(names));
        let config = DispatchConfig { max_in_flight: set_up.max_in_flight, retry: set_up.retry.clone(), seed: life };
        let runtime = Arc::new(SimRuntime { clock, spawner, owner: Owner::Router(life) });
        let monitor = weather.hangs.map(|_| HeartbeatMonitor::new(Arc::clone(&fleet), LIMIT));
        let dispatcher = Dispatcher::with_runtime(Arc::clone(&fleet), strategy(set_up.strategy), config, runtime);
        let kind = PeerKind::Router { fleet, dispatcher: Arc::new(dispatcher) };
        Self { monitor, ..Self::new(life, kind, engines) }
    }

    pub(crate) fn scripts(life: u64, engines: usize) -> Self {
        let sessions = Arc::new(Sessions::new(vec![None; engines]));
        Self::new(life, PeerKind::Scripts(sessions), engines)
    }

    fn new(life: u64, kind: PeerKind, engines: usize) -> Self {
        let (monitor, suspended) = (None, None);
        Self { life, kind, wires: vec![None; engines], monitor, suspended, attentive_since: Duration::ZERO }
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
            left.push(format!("router {} has {open} requests in flight", self.life));
        }
        for engine in fleet.status() {
            let load = engine.report.load;
            if engine.in_flight != InFlight::default() {
                left.push(format!("router {} holds {:?} on {}", self.life, engine.in_flight, engine.name));
            }
            if (load.running, load.waiting, load.pending_prefill_tokens) != (0, 0, 0) {
                left.push(format!("router {} believes that the idle {} has {load:?}", self.life, engine.name));
            }
        }
        left
    }
}

fn strategy(choice: StrategyChoice) -> Arc<dyn Strategy> {
    match choice {
        StrategyChoice::RoundRobin => Arc::new(RoundRobin::default()),
        StrategyChoice::LeastLoaded => Arc::new(LeastLoaded),
        StrategyChoice::Disagg { pd_balance_factor } => Arc::new(Disagg::new(pd_balance_factor)),
        StrategyChoice::LongPromptsApart { long_tokens } => Arc::new(LongPromptsApart { long_tokens }),
    }
}
