//! From a plan to an engine that has generated its first token.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use baton_protocol::{Secret, SessionClient};
use baton_router::{EngineId, Fleet};
use tokio::time::timeout;

use crate::announcement::Announcement;
use crate::child::EngineChild;
use crate::error::LaunchError;
use crate::launch::EnginePlan;
use crate::probe::probe;
use crate::screen::Screen;
use crate::spawner::Spawner;

/// Everything about one engine that stays the same over restarts.
pub(crate) struct EngineSeat {
    pub(crate) id: EngineId,
    pub(crate) plan: EnginePlan,
    pub(crate) program: PathBuf,
    pub(crate) secret: Secret,
    pub(crate) spawner: Spawner,
    pub(crate) screen: Screen,
    pub(crate) fleet: Arc<Fleet>,
    /// Longest a loading engine may be silent.
    pub(crate) silence: Duration,
}

pub(crate) struct RunningEngine {
    pub(crate) child: EngineChild,
    pub(crate) session: Arc<SessionClient>,
}

impl EngineSeat {
    pub(crate) async fn start(&self) -> Result<RunningEngine, LaunchError> {
        let mut child =
            EngineChild::spawn(&self.spawner, &self.program, &self.plan, &self.secret, &self.screen).await?;
        let brought_up = self.bring_up(&mut child).await;
        self.screen.progress_done(&self.plan.name);
        match brought_up {
            Ok(session) => Ok(RunningEngine { child, session }),
            Err(failure) => Err(self.explain(failure, child).await),
        }
    }

    async fn bring_up(&self, child: &mut EngineChild) -> Result<Arc<SessionClient>, Failure> {
        self.screen.progress(&self.plan.name, 0.0, "starting");
        let address = self.address(child).await?;
        let session = SessionClient::connect(address, &self.secret).await.map_err(Failure::Session)?;
        self.screen.progress(&self.plan.name, 1.0, "generating a first token");
        probe(&session).await.map_err(Failure::Probe)?;
        Ok(Arc::new(session))
    }

    async fn address(&self, child: &mut EngineChild) -> Result<SocketAddr, Failure> {
        loop {
            match timeout(self.silence, child.announcement()).await {
                Ok(Some(Announcement::Listening { listening })) => return Ok(listening),
                Ok(Some(Announcement::Progress { progress, phase })) => {
                    self.screen.progress(&self.plan.name, progress, &phase);
                }
                Ok(None) => return Err(Failure::Died),
                Err(_) => return Err(Failure::Stalled),
            }
        }
    }

    /// An engine that is dead by now died of something its log knows better.
    async fn explain(&self, failure: Failure, mut child: EngineChild) -> LaunchError {
        let name = self.plan.name.clone();
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
                LaunchError::Stalled { name, silent_s: self.silence.as_secs(), tail }
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
