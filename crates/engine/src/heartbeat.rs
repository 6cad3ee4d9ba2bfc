//! Whether the step loop's work moves, seen from outside of it: reported to routers at regular times, by threads that wait for
//! no step.

use std::time::Duration;

use baton_protocol::{HEARTBEAT_INTERVAL, Heartbeat};

/// Measures how long progress stands still, from what it is at each heartbeat.
#[derive(Debug, Default)]
pub struct ProgressWatch {
    seen: u64,
    looked_at: Duration,
    still: Duration,
    slowest: Duration,
}

impl ProgressWatch {
    /// `progress` changes with every piece of work; while it is `working` it has to.
    pub fn look(&mut self, now: Duration, working: bool, progress: u64) -> Heartbeat {
        let since = now.saturating_sub(self.looked_at);
        self.looked_at = now;
        if progress != self.seen || !working {
            // Only what ends was slow: a loop that is stuck for ever is not.
            self.slowest = self.slowest.max(self.still);
            (self.seen, self.still) = (progress, Duration::ZERO);
        } else {
            // A process that was stopped looks late, and its layers were not slow.
            self.still += since.min(2 * HEARTBEAT_INTERVAL);
        }
        Heartbeat { working, progress, slowest_layer: self.slowest }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_layer_is_measured_when_it_is_over() {
        let ms = Duration::from_millis;
        // now, working, progress → slowest layer
        let looks = [
            (0, false, 0, 0),
            (250, true, 1, 0),
            (500, true, 1, 0),
            (750, true, 1, 0),
            (1000, true, 2, 500),
            // Nothing is slow about having nothing to do.
            (9000, false, 2, 500),
            (9250, false, 2, 500),
            (9500, true, 3, 500),
            (9750, true, 4, 500),
            // Stopped for a minute in the middle of a layer.
            (70_000, true, 4, 500),
            (70_250, true, 5, 500),
            (70_500, true, 5, 500),
            (70_750, true, 5, 500),
            (71_000, true, 5, 500),
            (71_250, true, 6, 750),
        ];
        let mut watch = ProgressWatch::default();
        for (now, working, progress, slowest) in looks {
            let heartbeat = watch.look(ms(now), working, progress);
            assert_eq!(heartbeat, Heartbeat { working, progress, slowest_layer: ms(slowest) }, "at {now} ms");
        }
    }
}
