//! Starts or attaches one engine and waits until it is ready.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use baton_core::Fault;
use baton_protocol::{Engine, SessionClient};
use baton_router::{EngineId, Fleet};
use tokio::time::timeout;

use crate::announcement::Announcement;
use crate::attach::Attachment;
use crate::child::EngineChild;
use crate::endpoint::Endpoint;
use crate::error::{LaunchError, Tail};
use crate::identity::Identity;
use crate::launch::{EnginePlan, LaunchPlan, Origin};
use crate::probe::probe;
use crate::screen::Screen;
use crate::spawner::Spawner;

/// What stays the same over all restarts of an engine.
pub(crate) struct EngineSeat {
    pub(crate) id: EngineId,
    pub(crate) engine: EnginePlan,
    pub(crate) plan: Arc<LaunchPlan>,
    pub(crate) identity: Arc<Identity>,
    pub(crate) spawner: Spawner,
    pub(crate) screen: Screen,
    pub(crate) fleet: Arc<Fleet>,
}

pub(crate) struct RunningEngine {
    /// `None` for an attached engine.
    pub(crate) child: Option<EngineChild>,
    pub(crate) session: Arc<SessionClient>,
}

impl EngineSeat {
    pub(crate) fn name(&self) -> &str {
        &self.engine.name
    }

    /// `patience` is how long to try to connect to an attached engine.
    pub(crate) async fn start(&self, patience: Duration) -> Result<RunningEngine, LaunchError> {
        let engine = match &self.engine.origin {
            Origin::Spawned(args) => self.spawn(args).await?,
            Origin::Attached(endpoint) => self.attach(endpoint, patience).await?,
        };
        self.identity.check(self.name(), engine.session.info())?;
        Ok(engine)
    }

    async fn attach(&self, endpoint: &Endpoint, patience: Duration) -> Result<RunningEngine, LaunchError> {
        let engine = Attachment { name: self.name(), endpoint, secret: &self.plan.secret };
        let session = engine.connect(patience, &self.screen).await?;
        match probe(&session).await {
            // Full with requests of other routers, so it works.
            Err(error) if error.fault == Fault::Capacity => {}
            Err(source) => return Err(LaunchError::Probe { name: self.name().into(), source, tail: Tail(None) }),
            Ok(()) => {}
        }
        Ok(RunningEngine { child: None, session: Arc::new(session) })
    }

    async fn spawn(&self, args: &[OsString]) -> Result<RunningEngine, LaunchError> {
        let mut child = EngineChild::spawn(self, args).await?;
        let brought_up = self.bring_up(&mut child).await;
        self.screen.progress_done(self.name());
        match brought_up {
            Ok(session) => Ok(RunningEngine { child: Some(child), session }),
            Err(failure) => Err(self.explain(failure, child).await),
        }
    }

    async fn bring_up(&self, child: &mut EngineChild) -> Result<Arc<SessionClient>, Failure> {
        self.screen.progress(self.name(), 0.0, "starting");
        let address = self.address(child).await?;
        let session = SessionClient::connect(address, &self.plan.secret).await.map_err(Failure::Session)?;
        self.screen.progress(self.name(), 1.0, "generating a first token");
        probe(&session).await.map_err(Failure::Probe)?;
        Ok(Arc::new(session))
    }

    async fn address(&self, child: &mut EngineChild) -> Result<SocketAddr, Failure> {
        loop {
            match timeout(self.plan.silence, child.announcement()).await {
                Ok(Some(Announcement::Listening { listening })) => return Ok(listening),
                Ok(Some(Announcement::Progress { progress, phase })) => {
                    self.screen.progress(self.name(), progress, &phase);
                }
                Ok(None) => return Err(Failure::Died),
                Err(_) => return Err(Failure::Stalled),
            }
        }
    }

    /// Makes the error of a failed start. If the process has exited by itself, its status and log explain more than the
    /// failure seen here.
    async fn explain(&self, failure: Failure, mut child: EngineChild) -> LaunchError {
        let name = self.name().to_owned();
        let died_alone = matches!(failure, Failure::Died)
            || matches!(timeout(Duration::from_millis(500), child.exited()).await, Ok(Ok(_)));
        let status = child.end().await;
        let tail = child.log_tail();
        match (failure, status) {
            (_, Ok(status)) if died_alone => LaunchError::Died { name, status, tail },
            (Failure::Session(source), _) => LaunchError::Session { name, source, tail },
            (Failure::Probe(source), _) => LaunchError::Probe { name, source, tail },
            (Failure::Died, Err(source)) => LaunchError::Spawn { name, source },
            (Failure::Stalled | Failure::Died, _) => {
                LaunchError::Stalled { name, silent_s: self.plan.silence.as_secs(), tail }
            }
        }
    }
}

enum Failure {
    Died,
    Stalled,
    Session(baton_protocol::SessionError),
    Probe(baton_core::ServeError),
}
