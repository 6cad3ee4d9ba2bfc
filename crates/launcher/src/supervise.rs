//! One engine's life after the launch: alive, dead, back again, until the deployment stops.

use std::time::{Duration, Instant};

use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use crate::backoff::Backoff;
use crate::start::{EngineSeat, RunningEngine};

/// A process may live on a moment after its session has ended: that is how its exit status is learnt.
const EXIT_GRACE: Duration = Duration::from_secs(2);

/// Returns when `stop` turns true, with the engine ended.
pub(crate) async fn supervise(seat: EngineSeat, engine: RunningEngine, mut stop: watch::Receiver<bool>) {
    let mut engine = Some(engine);
    tokio::select! {
        biased;
        // A stop whose sender is gone is a stop.
        _ = stop.wait_for(|stop| *stop) => {}
        () = keep_running(&seat, &mut engine) => {}
    }
    seat.fleet.engine_down(seat.id);
    if let Some(mut engine) = engine
        && let Err(error) = engine.child.end().await
    {
        tracing::warn!(engine = seat.plan.name, %error, "could not be stopped");
    }
}

async fn keep_running(seat: &EngineSeat, engine: &mut Option<RunningEngine>) {
    let mut backoff = Backoff::default();
    loop {
        let born = Instant::now();
        if let Some(running) = engine {
            let how = died(running).await;
            seat.screen.log(&seat.plan.name, &format!("engine {how}"));
        }
        seat.fleet.engine_down(seat.id);
        *engine = None;
        let delay = backoff.after_living(born.elapsed());
        seat.screen.log(&seat.plan.name, &format!("restarting in {:.1} s", delay.as_secs_f32()));
        sleep(delay).await;
        seat.fleet.engine_restarting(seat.id);
        match seat.start().await {
            Ok(running) => {
                seat.fleet.engine_ready(seat.id, running.session.clone());
                seat.screen.log(&seat.plan.name, "engine is ready again");
                *engine = Some(running);
            }
            Err(error) => seat.screen.log(&seat.plan.name, &error.to_string()),
        }
    }
}

/// Waits for the engine's end and says how it came. One that breaks its session but lives on is ended.
async fn died(engine: &mut RunningEngine) -> String {
    tokio::select! {
        biased;
        _ = engine.child.exited() => {}
        () = engine.session.closed() => {}
    }
    let alone = timeout(EXIT_GRACE, engine.child.exited()).await.is_ok();
    match engine.child.end().await {
        Ok(status) if alone => format!("died ({status})"),
        Ok(_) => "broke its session".into(),
        Err(error) => format!("was lost: {error}"),
    }
}
