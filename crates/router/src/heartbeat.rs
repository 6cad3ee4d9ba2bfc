//! Which engines show no sign of life. Pure: the time comes from outside, heartbeats from the engines' sessions.
//!
//! ```text
//!   0 ─────────────── limit ─────────────── 2 × limit
//!   │ Responsive      │ Hung                │ Lost
//!   │                 │ gets no requests,   │ is killed and started again
//!   │                 │ its requests go on  │ by what started it
//!   │                 │ elsewhere           │
//! ```
//! An engine that is hung or lost is responsive again as soon as it shows life.

use std::sync::Arc;
use std::time::Duration;

use baton_protocol::Heartbeats;

use crate::fleet::Fleet;
use crate::liveness::Liveness;
use crate::runtime::Runtime;

/// Times the slowest layer so far: work that stands still for less is slow.
const SLOW_LAYERS: u32 = 4;
/// Checks within a limit.
const CHECKS: u32 = 12;

/// When one engine last showed life, on this router's clock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LifeSigns {
    received: u64,
    received_at: Duration,
    progress: u64,
    moved_at: Duration,
}

impl LifeSigns {
    pub(crate) fn from(now: Duration) -> Self {
        Self { received: 0, received_at: now, progress: 0, moved_at: now }
    }

    /// As if it had shown life now.
    pub(crate) fn start_anew(&mut self, now: Duration) {
        (self.received_at, self.moved_at) = (now, now);
    }

    pub(crate) fn check(&mut self, now: Duration, heartbeats: Heartbeats, limit: Duration) -> Liveness {
        let newest = heartbeats.newest;
        if heartbeats.received != self.received {
            (self.received, self.received_at) = (heartbeats.received, now);
        }
        if newest.progress != self.progress || !newest.working {
            (self.progress, self.moved_at) = (newest.progress, now);
        }
        let after = |since: Duration, limit: Duration| match now.saturating_sub(since) {
            waited if waited >= limit.saturating_mul(2) => Liveness::Lost,
            waited if waited >= limit => Liveness::Hung,
            _ => Liveness::Responsive,
        };
        let work_limit = limit.max(newest.slowest_layer.saturating_mul(SLOW_LAYERS));
        after(self.received_at, limit).max(after(self.moved_at, work_limit))
    }
}

/// Checks all engines of a fleet, again and again.
pub struct HeartbeatMonitor {
    fleet: Arc<Fleet>,
    limit: Duration,
    checked_at: Option<Duration>,
    /// Time in which heartbeats would have been noticed: what engines are judged by.
    attended: Duration,
}

impl HeartbeatMonitor {
    /// After `limit` without a heartbeat, or in work that does not move, an engine is hung.
    pub fn new(fleet: Arc<Fleet>, limit: Duration) -> Self {
        Self { fleet, limit, checked_at: None, attended: Duration::ZERO }
    }

    /// For ever.
    pub async fn run(mut self, runtime: &dyn Runtime) {
        loop {
            self.check(runtime.now());
            runtime.sleep(self.interval()).await;
        }
    }

    pub fn interval(&self) -> Duration {
        self.limit / CHECKS
    }

    /// To be called at every [`interval`](Self::interval). Called later than that, this process had too little of the machine
    /// to listen, and engines perhaps too little to beat: the wait counts as two intervals at most. Called much later, it was
    /// suspended: then every engine's time starts anew.
    pub fn check(&mut self, now: Duration) {
        let last = self.checked_at.replace(now).unwrap_or(now);
        let gap = now.saturating_sub(last);
        let was_suspended = gap > self.limit / 2;
        if was_suspended {
            tracing::warn!(
                gap_s = gap.as_secs_f32(),
                "this process was suspended: engines are given time to show life"
            );
        }
        self.attended += gap.min(2 * self.interval());
        self.fleet.check_heartbeats(self.attended, self.limit, was_suspended);
    }
}

#[cfg(test)]
mod tests {
    use baton_protocol::Heartbeat;

    use super::*;

    const MS: fn(u64) -> Duration = Duration::from_millis;
    const LIMIT: Duration = Duration::from_secs(3);

    fn heartbeats(received: u64, working: bool, progress: u64, slowest_ms: u64) -> Heartbeats {
        Heartbeats { received, newest: Heartbeat { working, progress, slowest_layer: MS(slowest_ms) } }
    }

    #[test]
    fn liveness_by_table() {
        use Liveness::{Hung, Lost, Responsive};
        // now, received, working, progress, slowest layer → liveness
        let checks = [
            ("none yet", 2900, 0, false, 0, 0, Responsive),
            ("none in time", 3000, 0, false, 0, 0, Hung),
            ("the first, idle", 3100, 1, false, 0, 0, Responsive),
            ("idle for long", 9000, 20, false, 0, 0, Responsive),
            ("silent while idle", 11_900, 20, false, 0, 0, Responsive),
            ("silent for the limit", 12_000, 20, false, 0, 0, Hung),
            ("silent for twice the limit", 15_000, 20, false, 0, 0, Lost),
            ("it is back", 15_100, 21, true, 1, 0, Responsive),
            ("beats, but its work stands still", 18_000, 30, true, 1, 0, Responsive),
            ("for the limit", 18_100, 31, true, 1, 0, Hung),
            ("and it moves", 18_200, 32, true, 2, 900, Responsive),
            ("four of its slowest layers are longer than the limit", 21_700, 40, true, 2, 900, Responsive),
            ("longer than those", 21_800, 41, true, 2, 900, Hung),
            ("twice as long", 25_400, 50, true, 2, 900, Lost),
            ("its work is over", 25_500, 51, false, 2, 900, Responsive),
            ("a slow layer does not excuse silence", 28_500, 51, true, 2, 9000, Hung),
        ];
        let mut signs = LifeSigns::from(MS(0));
        for (what, now, received, working, progress, slowest, expected) in checks {
            let liveness = signs.check(MS(now), heartbeats(received, working, progress, slowest), LIMIT);
            assert_eq!(liveness, expected, "{what}");
        }
    }
}
