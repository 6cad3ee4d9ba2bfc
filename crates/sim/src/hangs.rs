//! Engines that hang and routers that are suspended: what a seed draws of that, and the heartbeats, checks and restarts
//! that deal with it. Here limits are those of a real deployment, so everything lasts seconds.

use std::time::Duration;

use baton_engine::{EngineConfig, ProgressWatch};
use baton_protocol::{HEARTBEAT_INTERVAL, Heartbeat};
use baton_router::{EngineId, RetryPolicy, Role};
use futures_util::FutureExt;

use crate::executor::Owner;
use crate::faults::Fault;
use crate::hang_checker::HangChecker;
use crate::journal::Checker;
use crate::machine::{Process, ProcessId};
use crate::mutation::Mutation;
use crate::random::Random;
use crate::router::PeerKind;
use crate::weather::{EngineSetUp, Network, Theme, Weather};
use crate::world::{Event, Phase, World};

/// The default of `--hang-timeout`.
pub(crate) const LIMIT: Duration = Duration::from_secs(3);
/// Of which a step has three: far enough below the limit that no heartbeat is needed to know better.
const LONGEST_SLOW_STEP_MS: u64 = 7000;
const STORM_MS: u64 = 30_000;

/// Deployments whose engines hang.
#[derive(Clone, Copy)]
pub(crate) struct Hangs {
    /// The first router has started the engines, and starts them again.
    pub(crate) supervised: bool,
    /// Some steps take longer than an engine may be silent.
    pub(crate) slow: bool,
}

#[derive(Clone, Copy, Debug, Hash)]
pub(crate) enum Hang {
    /// The process is suspended.
    Process,
    /// Heartbeats are sent, but no layer ends.
    Device,
}

/// One engine's progress, and when it stood still.
#[derive(Default)]
pub(crate) struct Pulse {
    watch: ProgressWatch,
    turns: u64,
    moved_at: Duration,
    stopped_at: Duration,
    went_on_at: Option<Duration>,
    /// The longest that its device was stuck and went on.
    slowest: Duration,
    pub(crate) slow_steps: u64,
}

impl Pulse {
    pub(crate) fn turn(&mut self, now: Duration) {
        self.turns += 1;
        self.moved(now);
    }

    pub(crate) fn moved(&mut self, now: Duration) {
        self.moved_at = now;
    }

    pub(crate) fn stops(&mut self, now: Duration) {
        self.stopped_at = now;
    }

    pub(crate) fn goes_on(&mut self, now: Duration, was_stuck: bool) {
        self.went_on_at = Some(now);
        if was_stuck {
            self.slowest = self.slowest.max(now - self.since(false));
        }
    }

    pub(crate) fn slowest(&self) -> Duration {
        self.slowest
    }

    pub(crate) fn went_on_at(&self) -> Option<Duration> {
        self.went_on_at
    }

    /// A stuck device is noticed by what it does not do: the step may have begun later.
    pub(crate) fn since(&self, process_stopped: bool) -> Duration {
        if process_stopped { self.stopped_at } else { self.stopped_at.max(self.moved_at) }
    }

    pub(crate) fn beat(&mut self, now: Duration, working: bool, layers: u64) -> Heartbeat {
        self.watch.look(now, working, layers + self.turns)
    }
}

pub(crate) fn slow_step(random: &mut Random) -> Duration {
    random.millis(3500, LONGEST_SLOW_STEP_MS)
}

impl Hangs {
    /// Two engines at least generate, so that a request never has to wait for one to come back.
    pub(crate) fn scenario(weather: Weather, random: &mut Random) -> Weather {
        use Role::{Decode, Mixed, Prefill};
        let fleets: [&[Role]; 4] = [
            &[Prefill, Prefill, Decode, Decode],
            &[Prefill, Decode, Decode],
            &[Mixed, Mixed, Mixed],
            &[Prefill, Decode, Mixed],
        ];
        let hangs = Self { supervised: random.percent(60), slow: random.percent(40) };
        let one = EngineSetUp {
            role: Mixed,
            pages: 200,
            slots: 16,
            steps_in_flight: 1,
            config: EngineConfig { prefix_cache: random.percent(70), max_running: 16, ..EngineConfig::default() },
            step: random.millis(10, 40),
            token: random.micros(20, 200),
            slow_steps_per_mille: if hangs.slow { 20 } else { 0 },
        };
        let roles = fleets[random.index(fleets.len())].iter();
        let engines = roles.map(|&role| EngineSetUp { role, ..one.clone() }).collect();
        let mut routers = weather.routers;
        for router in &mut routers {
            (router.retry, router.max_in_flight) = (RetryPolicy::default(), 1000);
        }
        Weather {
            theme: Theme::Hangs,
            engines,
            routers,
            clients: random.between(20, 60),
            scripts: 0,
            heals_at: Duration::from_millis(STORM_MS),
            network: Network { loss_per_mille: 0, ..weather.network },
            faults: 0,
            sequence_failures_per_mille: 0,
            hangs: Some(hangs),
            ..weather
        }
    }

    /// The longest that a stream may stand still: an engine is noticed, and another one begins with the prompt.
    pub(crate) fn longest_stall(self) -> Option<Duration> {
        (!self.slow).then_some(2 * LIMIT)
    }

    /// The longest that a layer takes.
    pub(crate) fn slowest_layer(self) -> Duration {
        Duration::from_millis(if self.slow { LONGEST_SLOW_STEP_MS / 3 } else { 100 })
    }
}

impl World {
    /// One engine at a time: whoever stands still because of two has no engine to go to.
    pub(crate) fn plan_hangs(&mut self, hangs: Hangs) {
        let mut at = self.random.millis(500, 4000);
        while at < self.weather.heals_at {
            let engine = self.random.index(self.weather.engines.len());
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
            self.clock.at(at, Event::Fault(Fault::HangEngine { engine, how, lasts }));
            if self.random.percent(30) {
                let router = self.random.index(self.weather.routers.len());
                let pause = self.random.millis(500, 9000);
                let suspended_at = at + self.random.millis(0, 4000);
                if suspended_at < self.weather.heals_at {
                    self.clock.at(suspended_at, Event::Fault(Fault::SuspendRouter { router, pause }));
                }
            }
            at += self.random.millis(16_000, 20_000);
        }
    }

    pub(crate) fn hang_engine(&mut self, engine: usize, how: Hang, lasts: Option<Duration>) {
        let Some(process) = &mut self.processes[engine] else { return };
        match how {
            Hang::Process => process.stop(),
            Hang::Device => process.get_stuck(),
        }
        if let Some(lasts) = lasts {
            self.clock.after(lasts, Event::GoOn(process.id));
        }
    }

    pub(crate) fn suspend_router(&mut self, router: usize, pause: Duration) {
        let Some(peer) = &mut self.peers[router] else { return };
        peer.suspended.get_or_insert_default();
        self.executor.suspend(Owner::Router(peer.life));
        self.clock.after(pause, Event::ResumeRouter(router));
        self.past.hangs.suspended += 1;
    }

    pub(crate) fn resume_router(&mut self, router: usize) {
        let now = self.clock.now();
        let Some(peer) = &mut self.peers[router] else { return };
        let Some(kept) = peer.suspended.take() else { return };
        peer.attentive_since = now;
        self.executor.resume(Owner::Router(peer.life));
        self.book.excuse_stalls(now);
        for event in kept {
            self.dispatch(event);
        }
    }

    /// The process makes a heartbeat for each of its sessions.
    pub(crate) fn beat(&mut self, id: ProcessId) {
        let counts_steps = self.mutation == Some(Mutation::CountSteps);
        let Some(heartbeat) = self.process(id).map(|process| process.heartbeat(counts_steps)) else { return };
        for connection in self.connections.values().filter(|connection| connection.process == id) {
            connection.wire.beat(heartbeat);
        }
        if self.is_watched() {
            self.clock.after(HEARTBEAT_INTERVAL, Event::Beat(id));
        }
    }

    /// A router looks at its engines' heartbeats; the one that has started them restarts those that are lost.
    pub(crate) fn check_heartbeats(&mut self, at: usize, life: u64) {
        let Some(hangs) = self.weather.hangs else { return };
        let now = self.clock.now();
        let Some(peer) = self.peers[at].as_mut().filter(|peer| peer.life == life) else { return };
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
            let checker = HangChecker { hangs, process, now, interval, attentive_since: peer.attentive_since };
            if let Err(message) = checker.check(before, after, connection.wire.asked_at(), restarts && is_lost) {
                self.journal.blame(Checker::Hang, format!("router {life}, {:?}: {message}", process.id));
            }
            self.past.hangs.noticed += after.hangs - before.hangs;
            self.past.hangs.back += u64::from(after.ready && !before.ready);
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
            self.clock.after(interval, Event::Check { peer: at, life });
        }
    }

    /// From now on steps take their usual time, and everybody goes on.
    pub(crate) fn end_hangs(&mut self) {
        self.weather.engines.iter_mut().for_each(|engine| engine.slow_steps_per_mille = 0);
        self.processes.iter_mut().flatten().for_each(Process::calm);
        for router in 0..self.weather.routers.len() {
            self.resume_router(router);
        }
    }

    /// At last heartbeats end, so that nothing is due in a deployment at rest.
    fn is_watched(&self) -> bool {
        self.phase != Phase::Proof || !self.book.is_empty()
    }
}
