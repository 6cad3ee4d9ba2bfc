//! Connecting to engines that run already and were not started by this process.

use std::time::Duration;

use baton_core::EngineInfo;
use baton_protocol::{Engine, Secret, SessionClient, SessionError};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout, timeout_at};

use crate::endpoint::Endpoint;
use crate::error::LaunchError;
use crate::launch::{LaunchPlan, Origin};
use crate::screen::Screen;

/// Bounds one attempt, whether the host or the name resolver does not answer.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(250);
/// How long to wait for the other engines once one has answered, where engines may be missing.
const LAST_CALL: Duration = Duration::from_secs(2);

/// Connects to all attached engines of a plan at once, before anything is started, and returns what each reports about itself.
pub async fn query_attached(plan: &LaunchPlan, screen: &Screen) -> Result<Vec<(String, EngineInfo)>, LaunchError> {
    let mut queries = JoinSet::new();
    for engine in &plan.engines {
        let Origin::Attached(endpoint) = &engine.origin else { continue };
        let (name, endpoint, secret) = (engine.name.clone(), endpoint.clone(), plan.secret.clone());
        let (patience, screen) = (plan.patience, screen.clone());
        queries.spawn(async move {
            let engine = Attachment { name: &name, endpoint: &endpoint, secret: &secret };
            let info = engine.connect(patience, &screen).await?.info().clone();
            Ok((name, info))
        });
    }
    let (mut answers, mut missing) = (Vec::new(), None);
    let mut deadline = Instant::now() + plan.patience + CONNECT_TIMEOUT;
    while let Ok(Some(answer)) = timeout_at(deadline, queries.join_next()).await {
        match answer {
            Ok(Ok(info)) => {
                answers.push(info);
                if plan.may_be_missing {
                    deadline = deadline.min(Instant::now() + LAST_CALL);
                }
            }
            Ok(Err(error)) if plan.tolerates(&error) => missing = Some(error),
            Ok(Err(error)) => return Err(error),
            Err(panic) => std::panic::resume_unwind(panic.into_panic()),
        }
    }
    match missing {
        Some(error) if answers.is_empty() => Err(error),
        _ => Ok(answers),
    }
}

/// An engine that runs already: its address and the secret it expects.
pub(crate) struct Attachment<'a> {
    pub(crate) name: &'a str,
    pub(crate) endpoint: &'a Endpoint,
    pub(crate) secret: &'a Secret,
}

impl Attachment<'_> {
    /// Tries at least once; an engine that cannot be reached may still be loading, so it tries again until `patience` has passed.
    pub(crate) async fn connect(&self, patience: Duration, screen: &Screen) -> Result<SessionClient, LaunchError> {
        let deadline = Instant::now() + patience;
        loop {
            match self.connect_once().await {
                Err(LaunchError::Unreachable { source, .. }) if Instant::now() + PAUSE < deadline => {
                    screen.progress(self.name, 0.0, &format!("connecting to {} ({source})", self.endpoint));
                    sleep(PAUSE).await;
                }
                done => {
                    screen.progress_done(self.name);
                    return done;
                }
            }
        }
    }

    async fn connect_once(&self) -> Result<SessionClient, LaunchError> {
        let connected = timeout(CONNECT_TIMEOUT, self.try_addresses()).await;
        connected.unwrap_or(Err(SessionError::TimedOut(CONNECT_TIMEOUT.as_secs()))).map_err(|source| {
            let (name, endpoint) = (self.name.to_owned(), self.endpoint.clone());
            match source {
                SessionError::Io(_) | SessionError::TimedOut(_) | SessionError::Closed => {
                    LaunchError::Unreachable { name, endpoint, source }
                }
                _ => LaunchError::TurnedAway { name, endpoint, source },
            }
        })
    }

    async fn try_addresses(&self) -> Result<SessionClient, SessionError> {
        let mut last = SessionError::Closed;
        for address in self.endpoint.resolve().await? {
            match SessionClient::connect(address, self.secret).await {
                Ok(session) => return Ok(session),
                Err(error) => last = error,
            }
        }
        Err(last)
    }
}
