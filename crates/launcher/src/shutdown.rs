//! Ctrl-C and SIGTERM: the first signal begins to drain, the second one stops at once. A program that has its own handlers of
//! signals says so itself.

use std::io;

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    Serving,
    /// No new requests are accepted; running ones may finish.
    Draining,
    /// Running requests are cut off.
    Stopping,
}

#[derive(Clone)]
pub struct Shutdown(watch::Receiver<Stage>);

impl Shutdown {
    /// Watches this process's signals from now on.
    pub fn on_signals() -> io::Result<Self> {
        let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
        let (stage, watched) = watch::channel(Stage::Serving);
        tokio::spawn(async move {
            for next in [Stage::Draining, Stage::Stopping] {
                tokio::select! {
                    biased;
                    _ = interrupt.recv() => {}
                    _ = terminate.recv() => {}
                }
                stage.send_replace(next);
            }
            // Dropping the sender keeps the last stage readable.
        });
        Ok(Self(watched))
    }

    /// Ends when the [`Stop`] says so; signals are not watched.
    pub fn by_hand() -> (Stop, Self) {
        let (stage, watched) = watch::channel(Stage::Serving);
        (Stop(stage), Self(watched))
    }

    /// Waits for that stage or a later one.
    pub async fn reached(&self, stage: Stage) {
        if self.0.clone().wait_for(|now| *now >= stage).await.is_err() {
            // No more signals are watched and the stage was not reached: it never will be.
            std::future::pending::<()>().await;
        }
    }
}

/// Dropping it leaves the stage as it is, for ever.
pub struct Stop(watch::Sender<Stage>);

impl Stop {
    /// A stage that was reached already is not left again.
    pub fn reach(&self, stage: Stage) {
        self.0.send_if_modified(|now| {
            let later = stage > *now;
            *now = stage.max(*now);
            later
        });
    }
}
