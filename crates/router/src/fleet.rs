//! The engines of a deployment as this router knows them: which there are, in which role, and who is ready. Engines are
//! added and removed, and roles change, while requests are served.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;

use baton_core::EngineReport;
use baton_protocol::Engine;
use tokio::sync::watch;

use crate::counters::{Counters, RouterCounters};
use crate::engine::{EngineId, EngineStatus, Role};
use crate::liveness::Liveness;
use crate::member::{Member, Presence, Running, State};
use crate::pick::{Failed, Pick};
use crate::prefix_index::{self, PrefixIndex};
use crate::prompt_pages::PromptPages;
use crate::receivers::Receivers;
use crate::roster::{Past, Roster};

pub struct Fleet {
    members: RwLock<Members>,
    /// Counts comings and goings, so that requests that wait for an engine are woken.
    changes: watch::Sender<u64>,
    counters: Arc<Counters>,
}

#[derive(Default)]
struct Members {
    by_id: BTreeMap<EngineId, Arc<Member>>,
    /// Ids below were used before.
    next: usize,
}

/// An engine of the fleet has this name already.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NameTaken(pub String);

/// No engine of the fleet has this id or name, or it is leaving.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotThere;

impl Fleet {
    /// Engines that are starting, with ids from 0 on. Their names differ.
    pub fn new(members: impl IntoIterator<Item = (String, Role)>) -> Self {
        let fleet = Self { members: RwLock::default(), changes: watch::Sender::new(0), counters: Arc::default() };
        for (name, role) in members {
            let added = fleet.add(name, role);
            debug_assert!(added.is_ok(), "{added:?}");
        }
        fleet
    }

    /// Engines that are there already.
    pub fn of_ready(engines: impl IntoIterator<Item = (String, Role, Arc<dyn Engine>)>) -> Self {
        let (names, engines): (Vec<_>, Vec<_>) =
            engines.into_iter().map(|(name, role, engine)| ((name, role), engine)).unzip();
        let fleet = Self::new(names);
        for (id, engine) in fleet.ids().into_iter().zip(engines) {
            fleet.engine_ready(id, engine);
        }
        fleet
    }

    /// A further engine, which is starting.
    pub fn add(&self, name: impl Into<String>, role: Role) -> Result<EngineId, NameTaken> {
        let (name, mut members) = (name.into(), self.write());
        if members.by_id.values().any(|member| *member.name == *name) {
            return Err(NameTaken(name));
        }
        let id = EngineId(members.next);
        members.next += 1;
        members.by_id.insert(id, Arc::new(Member::new(name, role)));
        Ok(id)
    }

    /// The engine gets no more requests; those it has are served to their end. [`drained`](Self::drained) waits for that.
    pub fn remove(&self, id: EngineId) -> Result<(), NotThere> {
        self.change_present(id, |state| state.leaving = true)
    }

    /// Waits until the engine has been removed and nothing of this router is in flight on it; then it is no longer in the fleet.
    pub async fn drained(&self, id: EngineId) {
        let mut changes = self.changes();
        let Some(member) = self.member(id) else { return };
        // The sender is a field of this fleet, so it is never gone before.
        let _ = changes.wait_for(|_| member.lock().leaving).await;
        member.load.idle().await;
        self.write().by_id.remove(&id);
        self.changed();
    }

    /// Attempts that begin from now on see the new role; those under way go on.
    pub fn set_role(&self, id: EngineId, role: Role) -> Result<(), NotThere> {
        self.change_present(id, |state| state.role = role)
    }

    /// Ascending; engines that are leaving are among them.
    pub fn ids(&self) -> Vec<EngineId> {
        self.read().by_id.keys().copied().collect()
    }

    /// Also of an engine that is leaving.
    pub fn id(&self, name: &str) -> Option<EngineId> {
        self.read().by_id.iter().find(|(_, member)| *member.name == *name).map(|(id, _)| *id)
    }

    pub fn name(&self, id: EngineId) -> String {
        self.member(id).map_or_else(|| "?".to_owned(), |member| member.name.to_string())
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
        let cached = prefix_index::follow(&self.name(id), &engine, &self.counters);
        self.change(id, |state| {
            state.info = Some(engine.info().clone());
            state.report = EngineReport::default();
            state.presence = Presence::Ready(Running::new(engine, cached));
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
        for member in self.read().by_id.values() {
            let Some(liveness) = member.lock().check(now, limit, start_anew) else { continue };
            match liveness {
                Liveness::Responsive => tracing::info!(engine = &*member.name, "shows life again"),
                Liveness::Hung => {
                    tracing::warn!(engine = &*member.name, "shows no sign of life: its requests go on elsewhere")
                }
                Liveness::Lost => tracing::warn!(engine = &*member.name, "has not come back to life"),
            }
            self.changed();
        }
    }

    /// Waits until the engine that is ready now has shown no life for twice the limit. Never returns when none is.
    pub async fn lost(&self, id: EngineId) {
        let liveness = self.member(id).and_then(|member| match &member.lock().presence {
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
        let member = self.member(id)?;
        let state = member.lock();
        state.running().map(|running| Arc::clone(&running.cached))
    }

    /// Wakes at every coming and going from now on.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    pub fn is_ready(&self) -> bool {
        self.read().by_id.values().any(|member| member.lock().ready().is_some())
    }

    /// Who can be sent a request with this prompt now.
    pub(crate) fn roster(&self, past: &Past, prompt: &Arc<PromptPages>, now: Duration) -> Roster {
        let (failed, receivers) = (Failed::default(), Receivers::default());
        let members = self.read();
        let ready = members.by_id.iter().filter_map(|(&id, member)| {
            let (load, counters) = (Arc::clone(&member.load), Arc::clone(&self.counters));
            let state = member.lock();
            let Running { engine, cached, liveness, .. } = state.ready()?;
            let (engine, liveness) = (Arc::clone(engine), liveness.subscribe());
            let (cached, prompt) = (Arc::clone(cached), Arc::clone(prompt));
            let (name, failed, receivers) = (Arc::clone(&member.name), failed.clone(), receivers.clone());
            Some(Pick {
                id,
                name,
                role: state.role,
                engine,
                cached,
                prompt,
                liveness,
                load,
                counters,
                failed,
                receivers,
            })
        });
        Roster { ready: ready.collect(), past: Arc::new(past.clone()), now, failed }
    }

    pub(crate) fn counters(&self) -> &Counters {
        &self.counters
    }

    pub fn totals(&self) -> RouterCounters {
        self.counters.totals()
    }

    /// Ascending by id.
    pub fn status(&self) -> Vec<EngineStatus> {
        self.read().by_id.iter().map(|(id, member)| member.status(*id)).collect()
    }

    fn change(&self, id: EngineId, change: impl FnOnce(&mut State)) {
        if let Some(member) = self.member(id) {
            change(&mut member.lock());
            self.changed();
        }
    }

    /// For engines that are not leaving.
    fn change_present(&self, id: EngineId, change: impl FnOnce(&mut State)) -> Result<(), NotThere> {
        let member = self.member(id).ok_or(NotThere)?;
        let mut state = member.lock();
        if state.leaving {
            return Err(NotThere);
        }
        change(&mut state);
        drop(state);
        self.changed();
        Ok(())
    }

    fn changed(&self) {
        self.changes.send_modify(|count| *count += 1);
    }

    fn member(&self, id: EngineId) -> Option<Arc<Member>> {
        self.read().by_id.get(&id).cloned()
    }

    fn read(&self) -> RwLockReadGuard<'_, Members> {
        self.members.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Members> {
        self.members.write().unwrap_or_else(PoisonError::into_inner)
    }
}
