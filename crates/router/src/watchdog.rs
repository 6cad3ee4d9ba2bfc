//! Notices that nothing has happened for too long.

use std::time::Duration;

use futures_util::future::BoxFuture;

use crate::runtime::Runtime;

pub(crate) struct Watchdog<'a> {
    runtime: &'a dyn Runtime,
    patience: Duration,
    fed: Duration,
    /// Set anew when it rings, not at every feeding: those are as frequent as tokens.
    alarm: BoxFuture<'static, ()>,
}

impl<'a> Watchdog<'a> {
    pub(crate) fn new(runtime: &'a dyn Runtime, patience: Duration) -> Self {
        Self { runtime, patience, fed: runtime.now(), alarm: runtime.sleep(patience) }
    }

    pub(crate) fn feed(&mut self) {
        self.fed = self.runtime.now();
    }

    /// Resolves once it has not been fed for as long as its patience.
    pub(crate) async fn barks(&mut self) {
        loop {
            (&mut self.alarm).await;
            let hungry = self.runtime.now().saturating_sub(self.fed);
            let remaining = self.patience.saturating_sub(hungry);
            self.alarm = self.runtime.sleep(remaining);
            if remaining.is_zero() {
                return;
            }
        }
    }
}
