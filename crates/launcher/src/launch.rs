//! Launches all engines of a deployment together, and stops them together.

use std::ffi::OsString;
use std::sync::Arc;
use std::time::Duration;

use baton_core::Program;
use baton_protocol::Secret;
use baton_router::{Fleet, HeartbeatMonitor, Role, TokioRuntime};
use tokio::task::JoinSet;

use crate::control::EngineControl;
use crate::endpoint::Endpoint;
use crate::error::LaunchError;
use crate::identity::Identity;
use crate::screen::Screen;
use crate::spawner::Spawner;
use crate::start::{EngineSeat, RunningEngine};

pub struct LaunchPlan {
    /// Which spawned engines are commands of, usually this one.
    pub program: Program,
    pub engines: Vec<EnginePlan>,
    pub secret: Secret,
    /// The longest time between two announcements of an engine that loads.
    pub silence: Duration,
    /// How long to try to connect to an attached engine.
    pub patience: Duration,
    /// An engine that shows no sign of life for this long gets no more requests; one that we started and that shows none for
    /// twice as long is killed, and started again.
    pub hang_timeout: Duration,
    /// Whether attached engines that cannot be reached may join later, as long as one is ready.
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
    /// Started as a child process with these arguments.
    Spawned(Vec<OsString>),
    /// Runs already; not started by this process.
    Attached(Endpoint),
}

impl EnginePlan {
    /// Where it is, if it runs already.
    pub fn endpoint(&self) -> Option<&Endpoint> {
        match &self.origin {
            Origin::Spawned(_) => None,
            Origin::Attached(endpoint) => Some(endpoint),
        }
    }
}

impl LaunchPlan {
    /// The router's fleet with a place for each of these engines.
    pub fn fleet(&self) -> Fleet {
        Fleet::new(self.engines.iter().map(|engine| (engine.name.clone(), engine.role)))
    }

    pub(crate) fn tolerates(&self, error: &LaunchError) -> bool {
        self.may_be_missing && matches!(error, LaunchError::Unreachable { .. })
    }
}

/// Engines under supervision. Dropping it kills those that were spawned.
pub struct Deployment {
    control: EngineControl,
    /// Runs until the deployment is dropped.
    _monitor: JoinSet<()>,
}

/// Starts and attaches all engines at once. Returns when each has generated a token; when one fails, the spawned ones are killed.
pub async fn launch(
    plan: LaunchPlan,
    identity: Identity,
    fleet: Arc<Fleet>,
    screen: Screen,
) -> Result<Deployment, LaunchError> {
    let spawner = Spawner::start().map_err(|source| LaunchError::Spawn { name: "spawner".into(), source })?;
    let monitor = HeartbeatMonitor::new(Arc::clone(&fleet), plan.hang_timeout);
    // `query_attached` has already waited for engines that may be missing.
    let patience = if plan.may_be_missing { Duration::ZERO } else { plan.patience };
    let control = EngineControl::new(plan, identity, fleet, screen, spawner);
    let mut starting = JoinSet::new();
    for seat in control.planned() {
        starting.spawn(async move {
            let started = seat.start(patience).await;
            (seat, started)
        });
    }
    let mut engines: Vec<(EngineSeat, Option<RunningEngine>)> = Vec::new();
    while let Some(started) = starting.join_next().await {
        match started {
            Ok((seat, Ok(engine))) => engines.push((seat, Some(engine))),
            Ok((seat, Err(error))) if seat.plan.tolerates(&error) => engines.push((seat, None)),
            Ok((_, Err(error))) => return Err(error),
            Err(panic) => std::panic::resume_unwind(panic.into_panic()),
        }
    }
    for (seat, engine) in engines {
        control.supervise(seat, engine);
    }
    let mut monitors = JoinSet::new();
    monitors.spawn(async move { monitor.run(&TokioRuntime::default()).await });
    Ok(Deployment { control, _monitor: monitors })
}

impl Deployment {
    pub fn control(&self) -> &EngineControl {
        &self.control
    }

    /// Asks all spawned engines to exit, and kills those that do not.
    pub async fn stop(&mut self) {
        self.control.stop().await;
    }

    /// Kills all spawned engines.
    pub async fn kill(self) {
        if let Some(mut supervisors) = self.control.end() {
            supervisors.shutdown().await;
        }
    }
}

impl Drop for Deployment {
    fn drop(&mut self) {
        drop(self.control.end());
    }
}
