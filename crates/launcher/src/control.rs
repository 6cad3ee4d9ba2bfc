//! Engines that join a deployment that runs, and leave it.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use baton_protocol::Engine;
use baton_router::{EngineId, Fleet, NameTaken, NotThere, Role};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::endpoint::Endpoint;
use crate::error::LaunchError;
use crate::identity::Identity;
use crate::launch::{EnginePlan, LaunchPlan, Origin};
use crate::screen::Screen;
use crate::spawner::Spawner;
use crate::start::{EngineSeat, RunningEngine};
use crate::supervise::supervise;

/// Of a deployment, for as long as it runs; afterwards nothing joins any more.
#[derive(Clone)]
pub struct EngineControl(Arc<Shared>);

struct Shared {
    plan: Arc<LaunchPlan>,
    identity: Arc<Identity>,
    spawner: Spawner,
    screen: Screen,
    fleet: Arc<Fleet>,
    /// Where engines are that were not started here.
    endpoints: Mutex<BTreeMap<EngineId, Endpoint>>,
    /// `None` when the deployment has ended.
    supervisors: Mutex<Option<JoinSet<()>>>,
    stop: watch::Sender<bool>,
}

impl EngineControl {
    pub(crate) fn new(
        plan: LaunchPlan,
        identity: Identity,
        fleet: Arc<Fleet>,
        screen: Screen,
        spawner: Spawner,
    ) -> Self {
        Self(Arc::new(Shared {
            plan: Arc::new(plan),
            identity: Arc::new(identity),
            spawner,
            screen,
            fleet,
            endpoints: Mutex::default(),
            supervisors: Mutex::new(Some(JoinSet::new())),
            stop: watch::Sender::new(false),
        }))
    }

    /// Connects to an engine that runs already, and lets it join in this role. It is supervised as the others are.
    pub async fn join(&self, endpoint: Endpoint, role: Role) -> Result<EngineId, LaunchError> {
        // It goes on when the caller is gone, so that an engine is never half there.
        let (this, panicked) =
            (self.clone(), |error: tokio::task::JoinError| std::panic::resume_unwind(error.into_panic()));
        tokio::spawn(async move { this.attach(endpoint, role).await }).await.unwrap_or_else(panicked)
    }

    async fn attach(&self, endpoint: Endpoint, role: Role) -> Result<EngineId, LaunchError> {
        let seat = self.take_seat(endpoint, role)?;
        let started = seat.start(self.0.plan.patience).await.and_then(|engine| {
            self.0.identity.check_context(seat.name(), engine.session.info())?;
            Ok(engine)
        });
        match started {
            Ok(engine) => {
                let id = seat.id;
                seat.screen.log(seat.name(), "engine has joined");
                self.supervise(seat, Some(engine));
                Ok(id)
            }
            Err(error) => {
                // It may have been removed in the meantime.
                let _ = self.leave(seat.id);
                self.0.fleet.drained(seat.id).await;
                Err(error)
            }
        }
    }

    /// The engine gets no more requests. When those it has have ended, it leaves; one that was started here then exits.
    pub fn leave(&self, engine: EngineId) -> Result<(), NotThere> {
        self.0.fleet.remove(engine)
    }

    /// Where an engine is that was not started here.
    pub fn endpoint(&self, engine: EngineId) -> Option<Endpoint> {
        self.endpoints().get(&engine).cloned()
    }

    /// Those of the plan.
    pub(crate) fn planned(&self) -> Vec<EngineSeat> {
        let (mut endpoints, engines) = (self.endpoints(), &self.0.plan.engines);
        let seats = self.0.fleet.ids().into_iter().zip(engines).map(|(id, engine)| {
            if let Some(endpoint) = engine.endpoint() {
                endpoints.insert(id, endpoint.clone());
            }
            self.seat(id, engine.clone())
        });
        seats.collect()
    }

    /// For an engine that is to join: named after its role, as the others are.
    fn take_seat(&self, endpoint: Endpoint, role: Role) -> Result<EngineSeat, LaunchError> {
        let (mut endpoints, fleet) = (self.endpoints(), &self.0.fleet);
        let present = fleet.ids();
        endpoints.retain(|id, _| present.contains(id));
        if let Some((id, _)) = endpoints.iter().find(|(_, other)| **other == endpoint) {
            return Err(LaunchError::AlreadyThere { name: fleet.name(*id), endpoint });
        }
        let mut index = 0;
        let (id, name) = loop {
            let name = format!("{}-{index}", role.name());
            match fleet.add(name.clone(), role) {
                Ok(id) => break (id, name),
                Err(NameTaken(_)) => index += 1,
            }
        };
        endpoints.insert(id, endpoint.clone());
        Ok(self.seat(id, EnginePlan { name, role, origin: Origin::Attached(endpoint) }))
    }

    fn seat(&self, id: EngineId, engine: EnginePlan) -> EngineSeat {
        EngineSeat {
            id,
            engine,
            plan: Arc::clone(&self.0.plan),
            identity: Arc::clone(&self.0.identity),
            spawner: self.0.spawner.clone(),
            screen: self.0.screen.clone(),
            fleet: Arc::clone(&self.0.fleet),
        }
    }

    /// The engine, if there is one, can be sent requests from now on.
    pub(crate) fn supervise(&self, seat: EngineSeat, engine: Option<RunningEngine>) {
        let mut supervisors = self.supervisors();
        let Some(supervisors) = &mut *supervisors else { return };
        // Those of engines that have left.
        while supervisors.try_join_next().is_some() {}
        if let Some(engine) = &engine {
            seat.fleet.engine_ready(seat.id, engine.session.clone());
        }
        supervisors.spawn(supervise(seat, engine, self.0.stop.subscribe()));
    }

    /// Returns when all engines that were started here have exited.
    pub(crate) async fn stop(&self) {
        self.0.stop.send_replace(true);
        let next = |context: &mut Context<'_>| match &mut *self.supervisors() {
            Some(supervisors) => supervisors.poll_join_next(context),
            None => Poll::Ready(None),
        };
        while poll_fn(next).await.is_some() {}
    }

    /// Nothing joins any more. Dropping what is returned kills all engines that were started here.
    pub(crate) fn end(&self) -> Option<JoinSet<()>> {
        self.supervisors().take()
    }

    fn endpoints(&self) -> MutexGuard<'_, BTreeMap<EngineId, Endpoint>> {
        self.0.endpoints.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn supervisors(&self) -> MutexGuard<'_, Option<JoinSet<()>>> {
        self.0.supervisors.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
