//! Time and tasks, passed in so that a simulation can own both.

use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::time::Instant;

pub trait Runtime: Send + Sync {
    /// Since some fixed moment; never goes back.
    fn now(&self) -> Duration;

    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()>;

    fn spawn(&self, task: BoxFuture<'static, ()>);
}

/// The real ones.
pub struct TokioRuntime {
    start: Instant,
}

impl Default for TokioRuntime {
    fn default() -> Self {
        Self { start: Instant::now() }
    }
}

impl Runtime for TokioRuntime {
    fn now(&self) -> Duration {
        self.start.elapsed()
    }

    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
        Box::pin(tokio::time::sleep(duration))
    }

    fn spawn(&self, task: BoxFuture<'static, ()>) {
        tokio::spawn(task);
    }
}
