//! Notices that nothing has happened for too long.

use std::time::Duration;

use futures_util::future::BoxFuture;

use crate::runtime::Runtime;

pub(crate) struct Watchdog<'a> {
    runtime: &'a dyn Runtime,
    timeout: Duration,
    reset_at: Duration,
    /// Set anew when it rings, not at every reset: those are as frequent as tokens.
    alarm: BoxFuture<'static, ()>,
}

impl<'a> Watchdog<'a> {
    pub(crate) fn new(runtime: &'a dyn Runtime, timeout: Duration) -> Self {
        Self { runtime, timeout, reset_at: runtime.now(), alarm: runtime.sleep(timeout) }
    }

    pub(crate) fn reset(&mut self) {
        self.reset_at = self.runtime.now();
    }

    /// Resolves once it has not been reset for as long as the timeout.
    pub(crate) async fn expired(&mut self) {
        loop {
            (&mut self.alarm).await;
            let idle = self.runtime.now().saturating_sub(self.reset_at);
            let remaining = self.timeout.saturating_sub(idle);
            self.alarm = self.runtime.sleep(remaining);
            if remaining.is_zero() {
                return;
            }
        }
    }
}
