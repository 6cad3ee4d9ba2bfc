//! One engine's life after the launch: alive, gone, back again, until the deployment stops.

use std::time::{Duration, Instant};

use baton_protocol::SessionClient;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use crate::backoff::Backoff;
use crate::child::EngineChild;
use crate::error::LaunchError;
use crate::launch::Origin;
use crate::start::{EngineSeat, RunningEngine};

/// A process may live on a moment after its session has ended: that is how its exit status is learnt.
const EXIT_GRACE: Duration = Duration::from_secs(2);

/// Returns when `stop` turns true; an engine of ours has ended then.
pub(crate) async fn supervise(seat: EngineSeat, mut engine: Option<RunningEngine>, mut stop: watch::Receiver<bool>) {
    tokio::select! {
        biased;
        // A stop whose sender is gone is a stop.
        _ = stop.wait_for(|stop| *stop) => {}
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
    let (mut backoff, again) = match seat.engine().origin {
        Origin::Spawned(_) => (Backoff::before_starting(), "restarting"),
        Origin::Attached(_) => (Backoff::before_looking(), "connecting again"),
    };
    let mut told = None;
    loop {
        let born = Instant::now();
        if let Some(running) = engine {
            let how = gone(seat, running).await;
            told = None;
            seat.screen.log(seat.name(), &format!("engine {how}"));
        }
        seat.fleet.engine_down(seat.id);
        *engine = None;
        let delay = backoff.after_living(born.elapsed());
        if told.is_none() {
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
                // The same again and again would only hide the rest of the log.
                let error = error.to_string();
                if told.as_ref() != Some(&error) {
                    seat.screen.log(seat.name(), &error);
                }
                told = Some(error);
            }
        }
    }
}

async fn restart(seat: &EngineSeat) -> Result<RunningEngine, LaunchError> {
    if let Origin::Spawned(_) = seat.engine().origin {
        seat.fleet.engine_restarting(seat.id);
        return seat.start(Duration::ZERO).await;
    }
    let engine = seat.start(Duration::ZERO).await?;
    seat.fleet.engine_restarting(seat.id);
    Ok(engine)
}

/// Waits for the engine's end and says how it came.
async fn gone(seat: &EngineSeat, engine: &mut RunningEngine) -> String {
    match &mut engine.child {
        Some(child) => died(seat, child, &engine.session).await,
        None => {
            engine.session.closed().await;
            "closed its session".into()
        }
    }
}

/// One that breaks its session but lives on is ended, and so is one that shows no sign of life.
async fn died(seat: &EngineSeat, child: &mut EngineChild, session: &SessionClient) -> String {
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
