//! Supervision of one engine: restarts it, or connects to it again, until the deployment stops.

use std::time::{Duration, Instant};

use baton_protocol::SessionClient;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use crate::backoff::Backoff;
use crate::child::EngineChild;
use crate::error::LaunchError;
use crate::launch::Origin;
use crate::start::{EngineSeat, RunningEngine};

/// How long to wait for a process to exit by itself after its session has ended, to learn its exit status.
const EXIT_GRACE: Duration = Duration::from_secs(2);

/// Returns when `stop` turns true, or when the engine has left the fleet; a spawned engine has exited then.
pub(crate) async fn supervise(seat: EngineSeat, mut engine: Option<RunningEngine>, mut stop: watch::Receiver<bool>) {
    tokio::select! {
        biased;
        // A dropped sender counts as a stop.
        _ = stop.wait_for(|stop| *stop) => {}
        () = seat.fleet.drained(seat.id) => seat.screen.log(seat.name(), "engine has left"),
        () = keep_running(&seat, &mut engine) => {}
    }
    seat.fleet.engine_down(seat.id);
    if let Some(mut child) = engine.and_then(|engine| engine.child)
        && let Err(error) = child.end().await
    {
        tracing::warn!(engine = seat.name(), %error, "could not be stopped");
    }
}

async fn keep_running(seat: &EngineSeat, engine: &mut Option<RunningEngine>) {
    let (mut backoff, again) = match seat.engine.origin {
        Origin::Spawned(_) => (Backoff::before_starting(), "restarting"),
        Origin::Attached(_) => (Backoff::before_connecting(), "connecting again"),
    };
    let mut last_error = None;
    loop {
        let started = Instant::now();
        if let Some(running) = engine {
            let how = ended(seat, running).await;
            last_error = None;
            seat.screen.log(seat.name(), &format!("engine {how}"));
        }
        seat.fleet.engine_down(seat.id);
        *engine = None;
        let delay = backoff.after_living(started.elapsed());
        if last_error.is_none() {
            seat.screen.log(seat.name(), &format!("{again} in {:.1} s", delay.as_secs_f32()));
        }
        sleep(delay).await;
        match restart(seat).await {
            Ok(running) => {
                seat.fleet.engine_ready(seat.id, running.session.clone());
                seat.screen.log(seat.name(), "engine is ready again");
                *engine = Some(running);
            }
            Err(error) => {
                // The same error again and again would hide the rest of the log.
                let error = error.to_string();
                if last_error.as_ref() != Some(&error) {
                    seat.screen.log(seat.name(), &error);
                }
                last_error = Some(error);
            }
        }
    }
}

async fn restart(seat: &EngineSeat) -> Result<RunningEngine, LaunchError> {
    if let Origin::Spawned(_) = seat.engine.origin {
        seat.fleet.engine_restarting(seat.id);
        return seat.start(Duration::ZERO).await;
    }
    let engine = seat.start(Duration::ZERO).await?;
    seat.fleet.engine_restarting(seat.id);
    Ok(engine)
}

/// Waits until the engine is lost, and returns how it ended.
async fn ended(seat: &EngineSeat, engine: &mut RunningEngine) -> String {
    match &mut engine.child {
        Some(child) => child_ended(seat, child, &engine.session).await,
        None => {
            engine.session.closed().await;
            "closed its session".into()
        }
    }
}

/// Also ends a process that has closed its session but still runs, and kills one that shows no sign of life.
async fn child_ended(seat: &EngineSeat, child: &mut EngineChild, session: &SessionClient) -> String {
    tokio::select! {
        biased;
        _ = child.exited() => {}
        () = session.closed() => {}
        () = seat.fleet.lost(seat.id) => {
            let waited_s = 2.0 * seat.plan.hang_timeout.as_secs_f32();
            return match child.kill().await {
                Ok(()) => format!("showed no sign of life for {waited_s} s, and was killed"),
                Err(error) => format!("shows no sign of life, and cannot be killed: {error}"),
            };
        }
    }
    let alone = timeout(EXIT_GRACE, child.exited()).await.is_ok();
    match child.end().await {
        Ok(status) if alone => format!("died ({status})"),
        Ok(_) => "broke its session".into(),
        Err(error) => format!("was lost: {error}"),
    }
}
