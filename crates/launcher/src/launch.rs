//! All engines of a deployment: started and connected to together, ready together, stopped together.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use baton_protocol::Secret;
use baton_router::{Fleet, HeartbeatMonitor, Role, TokioRuntime};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::endpoint::Endpoint;
use crate::error::LaunchError;
use crate::identity::Identity;
use crate::screen::Screen;
use crate::spawner::Spawner;
use crate::start::{EngineSeat, RunningEngine};
use crate::supervise::supervise;

pub struct LaunchPlan {
    /// The executable of engines that are spawned, usually this one.
    pub program: PathBuf,
    pub engines: Vec<EnginePlan>,
    pub secret: Secret,
    /// Longest a loading engine may be silent.
    pub silence: Duration,
    /// Longest an engine that is not ours is looked for.
    pub patience: Duration,
    /// An engine that shows no sign of life for this long gets no more requests; one that we started and that shows none for
    /// twice as long is killed, and started again.
    pub hang_timeout: Duration,
    /// Engines that cannot be reached may come later, as long as one is there.
    pub may_be_missing: bool,
}

#[derive(Clone, Debug)]
pub struct EnginePlan {
    pub name: String,
    pub role: Role,
    pub origin: Origin,
}

#[derive(Clone, Debug)]
pub enum Origin {
    /// A child process with these arguments.
    Spawned(Vec<OsString>),
    /// Runs already, whoever started it.
    Attached(Endpoint),
}

impl LaunchPlan {
    /// The fleet that these engines will be.
    pub fn fleet(&self) -> Fleet {
        Fleet::new(self.engines.iter().map(|engine| (engine.name.clone(), engine.role)))
    }

    pub(crate) fn tolerates(&self, error: &LaunchError) -> bool {
        self.may_be_missing && matches!(error, LaunchError::Unreachable { .. })
    }
}

/// Engines that run and are kept running, or connected to. Dropping it kills those that were spawned.
pub struct Deployment {
    supervisors: JoinSet<()>,
    /// Ends with the deployment only.
    _monitor: JoinSet<()>,
    stop: watch::Sender<bool>,
}

/// Starts and attaches all engines at once and returns when every one has generated a token, or when the first has failed:
/// those that were spawned are killed then.
pub async fn launch(
    plan: LaunchPlan,
    identity: Identity,
    fleet: Arc<Fleet>,
    screen: Screen,
) -> Result<Deployment, LaunchError> {
    let spawner = Spawner::start().map_err(|source| LaunchError::Spawn { name: "spawner".into(), source })?;
    let monitor = HeartbeatMonitor::new(Arc::clone(&fleet), plan.hang_timeout);
    let (plan, identity) = (Arc::new(plan), Arc::new(identity));
    // Who was asked and did not answer has been waited for.
    let patience = if plan.may_be_missing { Duration::ZERO } else { plan.patience };
    let mut starting = JoinSet::new();
    for id in fleet.ids() {
        let seat = EngineSeat {
            id,
            plan: Arc::clone(&plan),
            identity: Arc::clone(&identity),
            spawner: spawner.clone(),
            screen: screen.clone(),
            fleet: Arc::clone(&fleet),
        };
        starting.spawn(async move {
            let started = seat.start(patience).await;
            (seat, started)
        });
    }
    let mut engines: Vec<(EngineSeat, Option<RunningEngine>)> = Vec::new();
    while let Some(started) = starting.join_next().await {
        match started {
            Ok((seat, Ok(engine))) => engines.push((seat, Some(engine))),
            Ok((seat, Err(error))) if plan.tolerates(&error) => engines.push((seat, None)),
            Ok((_, Err(error))) => return Err(error),
            Err(panic) => std::panic::resume_unwind(panic.into_panic()),
        }
    }
    let stop = watch::Sender::new(false);
    let mut supervisors = JoinSet::new();
    for (seat, engine) in engines {
        if let Some(engine) = &engine {
            fleet.engine_ready(seat.id, engine.session.clone());
        }
        supervisors.spawn(supervise(seat, engine, stop.subscribe()));
    }
    let mut monitors = JoinSet::new();
    monitors.spawn(async move { monitor.run(&TokioRuntime::default()).await });
    Ok(Deployment { supervisors, _monitor: monitors, stop })
}

impl Deployment {
    /// Ends all spawned engines, politely first.
    pub async fn stop(&mut self) {
        self.stop.send_replace(true);
        while self.supervisors.join_next().await.is_some() {}
    }

    /// Ends all spawned engines at once.
    pub async fn kill(mut self) {
        self.supervisors.shutdown().await;
    }
}
