//! The times at which tokens are due.

use std::time::Duration;

use tokio::time::Instant;

use super::engine::DialectEngine;

/// Due times are spaced evenly from the first one, so a late token does not delay the others.
#[derive(Clone, Copy, Debug)]
pub(super) struct TokenClock {
    next: Instant,
    every: Duration,
}

impl TokenClock {
    pub(super) fn new(engine: &DialectEngine, first: Instant) -> Self {
        Self { next: first + engine.faults.stall(), every: engine.config.speed.decode }
    }

    pub(super) fn due(&self) -> Instant {
        self.next
    }

    pub(super) fn advance(&mut self, engine: &DialectEngine) {
        self.next += self.every + engine.faults.stall();
    }
}

/// Sleeps; a duration of zero does not yield.
pub(super) async fn wait(duration: Duration) {
    if !duration.is_zero() {
        tokio::time::sleep(duration).await;
    }
}
