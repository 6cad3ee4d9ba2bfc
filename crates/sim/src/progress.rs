//! Whether an engine's work proceeds: what heartbeats report, and what the checker compares them with.

use std::time::Duration;

use baton_engine::ProgressWatch;
use baton_protocol::Heartbeat;

/// One engine's progress, and when it stood still.
#[derive(Default)]
pub(crate) struct Progress {
    watch: ProgressWatch,
    rounds: u64,
    moved_at: Duration,
    stopped_at: Duration,
    resumed_at: Option<Duration>,
    /// The longest that its device was stuck and went on.
    slowest: Duration,
    pub(crate) slow_steps: u64,
}

impl Progress {
    pub(crate) fn round(&mut self, now: Duration) {
        self.rounds += 1;
        self.moved(now);
    }

    pub(crate) fn moved(&mut self, now: Duration) {
        self.moved_at = now;
    }

    pub(crate) fn stops(&mut self, now: Duration) {
        self.stopped_at = now;
    }

    pub(crate) fn resumes(&mut self, now: Duration, was_stuck: bool) {
        self.resumed_at = Some(now);
        if was_stuck {
            self.slowest = self.slowest.max(now - self.since(false));
        }
    }

    pub(crate) fn slowest(&self) -> Duration {
        self.slowest
    }

    pub(crate) fn resumed_at(&self) -> Option<Duration> {
        self.resumed_at
    }

    /// A stuck device is noticed by what it does not do: the step may have begun later.
    pub(crate) fn since(&self, process_stopped: bool) -> Duration {
        if process_stopped { self.stopped_at } else { self.stopped_at.max(self.moved_at) }
    }

    pub(crate) fn heartbeat(&mut self, now: Duration, working: bool, layers: u64) -> Heartbeat {
        self.watch.look(now, working, layers + self.rounds)
    }
}
