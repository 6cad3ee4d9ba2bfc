//! The times at which tokens are due.

use std::time::Duration;

use tokio::time::Instant;

use super::DialectEngine;

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

impl DialectEngine {
    /// Simulated compute time of all prompts.
    pub(super) fn prefill_time(&self, prompt_tokens: usize) -> Duration {
        let speed = &self.config.speed;
        speed.prefill + speed.prefill_per_token * prompt_tokens as u32
    }

    pub(super) fn transfer_time(&self, tokens: usize) -> Duration {
        self.config.speed.transfer_per_token * tokens as u32
    }
}

/// Sleeps; a duration of zero does not yield.
pub(super) async fn wait(duration: Duration) {
    if !duration.is_zero() {
        tokio::time::sleep(duration).await;
    }
}
