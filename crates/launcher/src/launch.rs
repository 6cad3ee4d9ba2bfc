//! All engines of a deployment: started together, ready together, stopped together.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use baton_protocol::Secret;
use baton_router::{EngineId, Fleet, Role};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::error::LaunchError;
use crate::screen::Screen;
use crate::spawner::Spawner;
use crate::start::{EngineSeat, RunningEngine};
use crate::supervise::supervise;

pub struct LaunchPlan {
    /// The engine's executable, usually this one.
    pub program: PathBuf,
    pub engines: Vec<EnginePlan>,
    pub secret: Secret,
    /// Longest a loading engine may be silent.
    pub silence: Duration,
}

#[derive(Clone, Debug)]
pub struct EnginePlan {
    pub name: String,
    pub role: Role,
    pub args: Vec<OsString>,
}

impl LaunchPlan {
    /// The fleet that these engines will be.
    pub fn fleet(&self) -> Fleet {
        Fleet::new(self.engines.iter().map(|engine| (engine.name.clone(), engine.role)))
    }
}

/// Engines that run and are kept running. Dropping it kills them.
pub struct Deployment {
    supervisors: JoinSet<()>,
    stop: watch::Sender<bool>,
}

/// Starts all engines at once and returns when every one has generated a token, or when the first has failed: the others
/// are killed then.
pub async fn launch(plan: LaunchPlan, fleet: Arc<Fleet>, screen: Screen) -> Result<Deployment, LaunchError> {
    let spawner = Spawner::start().map_err(|source| LaunchError::Spawn { name: "spawner".into(), source })?;
    let mut starting = JoinSet::new();
    for (index, engine) in plan.engines.into_iter().enumerate() {
        let seat = EngineSeat {
            id: EngineId(index),
            plan: engine,
            program: plan.program.clone(),
            secret: plan.secret.clone(),
            spawner: spawner.clone(),
            screen: screen.clone(),
            fleet: Arc::clone(&fleet),
            silence: plan.silence,
        };
        starting.spawn(async move {
            let started = seat.start().await;
            started.map(|engine| (seat, engine))
        });
    }
    let mut engines: Vec<(EngineSeat, RunningEngine)> = Vec::new();
    while let Some(started) = starting.join_next().await {
        match started {
            Ok(started) => engines.push(started?),
            Err(panic) => std::panic::resume_unwind(panic.into_panic()),
        }
    }
    let stop = watch::Sender::new(false);
    let mut supervisors = JoinSet::new();
    for (seat, engine) in engines {
        fleet.engine_ready(seat.id, engine.session.clone());
        supervisors.spawn(supervise(seat, engine, stop.subscribe()));
    }
    Ok(Deployment { supervisors, stop })
}

impl Deployment {
    /// Ends all engines, politely first.
    pub async fn stop(&mut self) {
        self.stop.send_replace(true);
        while self.supervisors.join_next().await.is_some() {}
    }

    /// Ends all engines at once.
    pub async fn kill(mut self) {
        self.supervisors.shutdown().await;
    }
}
