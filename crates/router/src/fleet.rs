//! The engines of a deployment as this router knows them. Only the launcher reports comings and goings.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use baton_core::{EngineInfo, EngineReport};
use baton_protocol::Engine;
use tokio::sync::watch;

use crate::counters::{Counters, RouterCounters};
use crate::heartbeat::{LifeSigns, Liveness};
use crate::load::{InFlight, Load};
use crate::pick::{Failed, Pick};
use crate::prefix_index::{self, PrefixIndex};
use crate::prompt_pages::PromptPages;
use crate::roster::{Past, Roster};

/// An engine's place in the fleet; stays the same over restarts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EngineId(pub usize);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    Mixed,
    Prefill,
    Decode,
}

impl Role {
    pub fn name(self) -> &'static str {
        match self {
            Self::Mixed => "mixed",
            Self::Prefill => "prefill",
            Self::Decode => "decode",
        }
    }
}

pub struct Fleet {
    members: Vec<Member>,
    /// Counts comings and goings, so that requests that wait for an engine are woken.
    changes: watch::Sender<u64>,
    counters: Arc<Counters>,
}

struct Member {
    name: String,
    role: Role,
    load: Arc<Load>,
    state: Mutex<State>,
}

struct State {
    presence: Presence,
    restarts: u64,
    hangs: u64,
    /// Kept when the engine is gone.
    info: Option<EngineInfo>,
    report: EngineReport,
}

enum Presence {
    Starting,
    Ready(Running),
    Down,
}

struct Running {
    engine: Arc<dyn Engine>,
    /// What its prefix cache holds.
    cached: Arc<PrefixIndex>,
    /// Since its heartbeats were first checked.
    signs: Option<LifeSigns>,
    liveness: watch::Sender<Liveness>,
}

/// One engine, for metrics and people.
#[derive(Clone, Debug, PartialEq)]
pub struct EngineStatus {
    pub name: String,
    pub role: Role,
    /// The process is there, though it may still be loading.
    pub alive: bool,
    pub ready: bool,
    /// `None` until it has been ready once.
    pub info: Option<EngineInfo>,
    pub report: EngineReport,
    /// Of this router; others may use the engine too.
    pub in_flight: InFlight,
    pub restarts: u64,
    /// Times it stopped showing signs of life.
    pub hangs: u64,
}

impl Fleet {
    /// All engines are starting.
    pub fn new(members: impl IntoIterator<Item = (String, Role)>) -> Self {
        let members = members.into_iter().map(|(name, role)| Member {
            name,
            role,
            load: Arc::default(),
            state: Mutex::new(State {
                presence: Presence::Starting,
                restarts: 0,
                hangs: 0,
                info: None,
                report: EngineReport::default(),
            }),
        });
        Self { members: members.collect(), changes: watch::Sender::new(0), counters: Arc::default() }
    }

    /// Engines that are there already.
    pub fn of_ready(engines: impl IntoIterator<Item = (String, Role, Arc<dyn Engine>)>) -> Self {
        let (names, engines): (Vec<_>, Vec<_>) =
            engines.into_iter().map(|(name, role, engine)| ((name, role), engine)).unzip();
        let fleet = Self::new(names);
        for (id, engine) in fleet.ids().zip(engines) {
            fleet.engine_ready(id, engine);
        }
        fleet
    }

    pub fn ids(&self) -> impl Iterator<Item = EngineId> + use<> {
        (0..self.members.len()).map(EngineId)
    }

    pub fn name(&self, id: EngineId) -> &str {
        self.members.get(id.0).map_or("?", |member| &member.name)
    }

    /// A process for this engine starts again.
    pub fn engine_restarting(&self, id: EngineId) {
        self.change(id, |state| {
            state.presence = Presence::Starting;
            state.restarts += 1;
        });
    }

    /// The engine answers; the one that had this place before is dropped.
    pub fn engine_ready(&self, id: EngineId, engine: Arc<dyn Engine>) {
        let cached = prefix_index::follow(self.name(id), &engine, &self.counters);
        self.change(id, |state| {
            state.info = Some(engine.info().clone());
            state.report = EngineReport::default();
            let (signs, liveness) = (None, watch::Sender::default());
            state.presence = Presence::Ready(Running { engine, cached, signs, liveness });
        });
    }

    /// The engine is gone. Its open streams end, and are resumed elsewhere.
    pub fn engine_down(&self, id: EngineId) {
        self.change(id, |state| {
            if let Presence::Ready(running) = &state.presence {
                state.report = running.engine.report();
            }
            state.presence = Presence::Down;
        });
    }

    /// An engine that has shown no life for `limit` is hung: it gets no more requests, and those it has go on elsewhere.
    /// `start_anew`: this process did not run, so the time that an engine was silent counts from now.
    pub(crate) fn check_heartbeats(&self, now: Duration, limit: Duration, start_anew: bool) {
        for member in &self.members {
            let Some(liveness) = member.lock().check(now, limit, start_anew) else { continue };
            match liveness {
                Liveness::Responsive => tracing::info!(engine = member.name, "shows life again"),
                Liveness::Hung => {
                    tracing::warn!(engine = member.name, "shows no sign of life: its requests go on elsewhere")
                }
                Liveness::Lost => tracing::warn!(engine = member.name, "has not come back to life"),
            }
            self.changes.send_modify(|count| *count += 1);
        }
    }

    /// Waits until the engine that is ready now has shown no life for twice the limit. Never returns when none is.
    pub async fn lost(&self, id: EngineId) {
        let liveness = self.members.get(id.0).and_then(|member| match &member.lock().presence {
            Presence::Ready(running) => Some(running.liveness.subscribe()),
            _ => None,
        });
        if let Some(mut liveness) = liveness
            && liveness.wait_for(|now| *now == Liveness::Lost).await.is_ok()
        {
            return;
        }
        std::future::pending().await
    }

    /// What the engine's prefix cache holds, as far as this router has heard; `None` while it is not ready.
    pub fn cached_on(&self, id: EngineId) -> Option<Arc<PrefixIndex>> {
        let state = self.members.get(id.0)?.lock();
        state.running().map(|running| Arc::clone(&running.cached))
    }

    /// Wakes at every coming and going from now on.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    pub fn is_ready(&self) -> bool {
        self.members.iter().any(|member| member.lock().ready().is_some())
    }

    /// Who can be sent a request with this prompt now.
    pub(crate) fn roster(&self, past: &Past, prompt: &Arc<PromptPages>) -> Roster {
        let failed = Failed::default();
        let ready = self.ids().zip(&self.members).filter_map(|(id, member)| {
            let (load, counters) = (Arc::clone(&member.load), Arc::clone(&self.counters));
            let state = member.lock();
            let Running { engine, cached, liveness, .. } = state.ready()?;
            let (engine, liveness) = (Arc::clone(engine), liveness.subscribe());
            let (cached, prompt, failed) = (Arc::clone(cached), Arc::clone(prompt), failed.clone());
            Some(Pick { id, role: member.role, engine, cached, prompt, liveness, load, counters, failed })
        });
        Roster { ready: ready.collect(), past: Arc::new(past.clone()), failed }
    }

    pub(crate) fn counters(&self) -> &Counters {
        &self.counters
    }

    pub fn totals(&self) -> RouterCounters {
        self.counters.totals()
    }

    pub fn status(&self) -> Vec<EngineStatus> {
        self.members.iter().map(Member::status).collect()
    }

    fn change(&self, id: EngineId, change: impl FnOnce(&mut State)) {
        if let Some(member) = self.members.get(id.0) {
            change(&mut member.lock());
            self.changes.send_modify(|count| *count += 1);
        }
    }
}

impl Member {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn status(&self) -> EngineStatus {
        let state = self.lock();
        let ready = state.ready();
        EngineStatus {
            name: self.name.clone(),
            role: self.role,
            alive: ready.is_some() || matches!(state.presence, Presence::Starting),
            ready: ready.is_some(),
            info: state.info.clone(),
            report: state.running().map_or_else(|| state.report.clone(), |running| running.engine.report()),
            in_flight: self.load.in_flight(),
            restarts: state.restarts,
            hangs: state.hangs,
        }
    }
}

impl State {
    fn running(&self) -> Option<&Running> {
        match &self.presence {
            Presence::Ready(running) if running.engine.is_alive() => Some(running),
            _ => None,
        }
    }

    /// Can be sent requests.
    fn ready(&self) -> Option<&Running> {
        self.running().filter(|running| *running.liveness.borrow() == Liveness::Responsive)
    }

    /// The liveness that it has now, if it is another than before.
    fn check(&mut self, now: Duration, limit: Duration, start_anew: bool) -> Option<Liveness> {
        let Presence::Ready(running) = &mut self.presence else { return None };
        let heartbeats = running.engine.heartbeats()?;
        let signs = running.signs.get_or_insert_with(|| LifeSigns::from(now));
        if start_anew {
            signs.start_anew(now);
        }
        let liveness = signs.check(now, heartbeats, limit);
        let before = running.liveness.send_replace(liveness);
        if before == Liveness::Responsive && liveness != before {
            self.hangs += 1;
        }
        (liveness != before).then_some(liveness)
    }
}
