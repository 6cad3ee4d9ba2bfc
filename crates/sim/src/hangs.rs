//! Engines that hang and routers that are suspended: what a seed draws of that, and the heartbeats, checks and restarts
//! that deal with it. Here limits are those of a real deployment, so everything lasts seconds.

use std::time::Duration;

use baton_protocol::HEARTBEAT_INTERVAL;
use baton_router::EngineId;
use futures_util::FutureExt;

use crate::event::{Event, Hang, InjectedFault};
use crate::event_log::Checker;
use crate::executor::Owner;
use crate::hang_checker::HangChecker;
use crate::hang_scenario::HangScenario;
use crate::ids::ProcessId;
use crate::mutation::Mutation;
use crate::peer::PeerKind;
use crate::process::Process;
use crate::world::{Phase, World};

impl World {
    /// One engine at a time: a request that stands still because of two has no engine to go to.
    pub(crate) fn plan_hangs(&mut self, hangs: HangScenario) {
        let mut at = self.random.millis(500, 4000);
        while at < self.scenario.faults_end_at {
            let engine = self.random.index(self.scenario.engines.len());
            let how = if self.random.percent(70) { Hang::Process } else { Hang::Device };
            let lasts = match (how, self.random.below(4)) {
                // What ends is a slow layer for ever after, and the engine's limit grows with it.
                (Hang::Device, _) if !hangs.slow && !hangs.supervised => Some(self.random.millis(100, 700)),
                (_, 0) => Some(self.random.millis(100, 700)),
                (_, 3) if hangs.supervised => None,
                (Hang::Device, _) if !hangs.slow => None,
                (_, 1 | 2) => Some(self.random.millis(3400, 5800)),
                _ => Some(self.random.millis(6500, 9000)),
            };
            self.clock.at(at, Event::Fault(InjectedFault::HangEngine { engine, how, lasts }));
            if self.random.percent(30) {
                let router = self.random.index(self.scenario.routers.len());
                let pause = self.random.millis(500, 9000);
                let suspended_at = at + self.random.millis(0, 4000);
                if suspended_at < self.scenario.faults_end_at {
                    self.clock.at(suspended_at, Event::Fault(InjectedFault::SuspendRouter { router, pause }));
                }
            }
            at += self.random.millis(16_000, 20_000);
        }
    }

    pub(crate) fn hang_engine(&mut self, engine: usize, how: Hang, lasts: Option<Duration>) {
        let Some(process) = &mut self.processes[engine] else { return };
        match how {
            Hang::Process => process.stop(),
            Hang::Device => process.stop_device(),
        }
        if let Some(lasts) = lasts {
            self.clock.after(lasts, Event::ResumeEngine(process.id));
        }
    }

    pub(crate) fn suspend_router(&mut self, router: usize, pause: Duration) {
        let Some(peer) = &mut self.peers[router] else { return };
        peer.suspended.get_or_insert_default();
        self.executor.suspend(Owner::Router(peer.incarnation));
        self.clock.after(pause, Event::ResumeRouter(router));
        self.past.hangs.suspended += 1;
    }

    pub(crate) fn resume_router(&mut self, router: usize) {
        let now = self.clock.now();
        let Some(peer) = &mut self.peers[router] else { return };
        let Some(kept) = peer.suspended.take() else { return };
        peer.running_since = now;
        self.executor.resume(Owner::Router(peer.incarnation));
        self.requests.ignore_stalls_before(now);
        for event in kept {
            self.dispatch(event);
        }
    }

    /// The process makes a heartbeat for each of its sessions.
    pub(crate) fn send_heartbeat(&mut self, id: ProcessId) {
        let counts_steps = self.mutation == Some(Mutation::CountSteps);
        let Some(heartbeat) = self.process(id).map(|process| process.heartbeat(counts_steps)) else { return };
        for connection in self.connections.values().filter(|connection| connection.process == id) {
            connection.wire.send_heartbeat(heartbeat);
        }
        if self.is_watched() {
            self.clock.after(HEARTBEAT_INTERVAL, Event::MakeHeartbeat(id));
        }
    }

    /// A router looks at its engines' heartbeats; the one that has started them restarts those that are lost.
    pub(crate) fn check_heartbeats(&mut self, at: usize, incarnation: u64) {
        let Some(hangs) = self.scenario.hangs else { return };
        let now = self.clock.now();
        let Some(peer) = self.peers[at].as_mut().filter(|peer| peer.incarnation == incarnation) else { return };
        let (PeerKind::Router { fleet, .. }, Some(monitor)) = (&peer.kind, &mut peer.monitor) else { return };
        let fleet = fleet.clone();
        let before = fleet.status();
        monitor.check(now);
        let interval = monitor.interval();
        let after = fleet.status();
        let mut lost = Vec::new();
        for (engine, (before, after)) in before.iter().zip(&after).enumerate() {
            let Some(connection) = peer.wires[engine].and_then(|wire| self.connections.get(&wire)) else { continue };
            let process = self.processes[engine].as_ref().filter(|process| process.id == connection.process);
            let Some(process) = process else { continue };
            let restarts = at == 0 && hangs.supervised;
            let is_lost = fleet.lost(EngineId(engine)).now_or_never().is_some();
            let checker = HangChecker { hangs, process, now, interval, running_since: peer.running_since };
            if let Err(message) = checker.check(before, after, connection.wire.last_request_at(), restarts && is_lost) {
                self.log.report_violation(Checker::Hang, format!("router {incarnation}, {:?}: {message}", process.id));
            }
            self.past.hangs.noticed += after.hangs - before.hangs;
            self.past.hangs.back += u64::from(after.is_ready() && !before.is_ready());
            if restarts && is_lost {
                lost.push(engine);
            }
        }
        for engine in lost {
            self.past.hangs.restarted += 1;
            self.kill_engine(engine, "killed, having hung");
            let down = self.random.millis(200, 2500);
            self.clock.after(down, Event::StartEngine(engine));
        }
        if self.is_watched() {
            self.clock.after(interval, Event::Check { peer: at, incarnation });
        }
    }

    /// From now on steps take their usual time, and everybody goes on.
    pub(crate) fn end_hangs(&mut self) {
        self.scenario.engines.iter_mut().for_each(|engine| engine.slow_steps_per_mille = 0);
        self.processes.iter_mut().flatten().for_each(Process::calm);
        for router in 0..self.scenario.routers.len() {
            self.resume_router(router);
        }
    }

    /// At last heartbeats end, so that nothing is due in a deployment at rest.
    fn is_watched(&self) -> bool {
        self.phase != Phase::Final || !self.requests.is_empty()
    }
}
