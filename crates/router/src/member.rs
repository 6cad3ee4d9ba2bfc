//! One engine of the fleet: its role, whether it is there, and what this router has in flight on it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use baton_core::{EngineInfo, EngineReport};
use baton_protocol::Engine;
use tokio::sync::watch;

use crate::engine::{EngineId, EngineState, EngineStatus, Role};
use crate::heartbeat::LifeSigns;
use crate::liveness::Liveness;
use crate::load::Load;
use crate::prefix_index::PrefixIndex;

pub(crate) struct Member {
    pub(crate) name: Arc<str>,
    pub(crate) load: Arc<Load>,
    state: Mutex<State>,
}

pub(crate) struct State {
    pub(crate) role: Role,
    pub(crate) presence: Presence,
    /// It gets no more requests.
    pub(crate) leaving: bool,
    pub(crate) restarts: u64,
    hangs: u64,
    /// Kept when the engine is gone.
    pub(crate) info: Option<EngineInfo>,
    pub(crate) report: EngineReport,
}

pub(crate) enum Presence {
    Starting,
    Ready(Running),
    Down,
}

pub(crate) struct Running {
    pub(crate) engine: Arc<dyn Engine>,
    /// What its prefix cache holds.
    pub(crate) cached: Arc<PrefixIndex>,
    /// Since its heartbeats were first checked.
    signs: Option<LifeSigns>,
    pub(crate) liveness: watch::Sender<Liveness>,
}

impl Running {
    pub(crate) fn new(engine: Arc<dyn Engine>, cached: Arc<PrefixIndex>) -> Self {
        Self { engine, cached, signs: None, liveness: watch::Sender::default() }
    }
}

impl Member {
    /// It is starting.
    pub(crate) fn new(name: String, role: Role) -> Self {
        let state = State {
            role,
            presence: Presence::Starting,
            leaving: false,
            restarts: 0,
            hangs: 0,
            info: None,
            report: EngineReport::default(),
        };
        Self { name: name.into(), load: Arc::default(), state: Mutex::new(state) }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn status(&self, id: EngineId) -> EngineStatus {
        let state = self.lock();
        EngineStatus {
            id,
            name: self.name.to_string(),
            role: state.role,
            state: state.engine_state(),
            info: state.info.clone(),
            report: state.running().map_or_else(|| state.report.clone(), |running| running.engine.report()),
            in_flight: self.load.in_flight(),
            restarts: state.restarts,
            hangs: state.hangs,
        }
    }
}

impl State {
    pub(crate) fn running(&self) -> Option<&Running> {
        match &self.presence {
            Presence::Ready(running) if running.engine.is_alive() => Some(running),
            _ => None,
        }
    }

    /// Can be sent requests.
    pub(crate) fn ready(&self) -> Option<&Running> {
        self.running().filter(|running| !self.leaving && *running.liveness.borrow() == Liveness::Responsive)
    }

    fn engine_state(&self) -> EngineState {
        match &self.presence {
            _ if self.leaving => EngineState::Leaving,
            Presence::Starting => EngineState::Starting,
            Presence::Ready(_) if self.ready().is_some() => EngineState::Ready,
            Presence::Ready(_) if self.running().is_some() => EngineState::Hung,
            Presence::Ready(_) | Presence::Down => EngineState::Down,
        }
    }

    /// The liveness that it has now, if it is another than before.
    pub(crate) fn check(&mut self, now: Duration, limit: Duration, start_anew: bool) -> Option<Liveness> {
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
