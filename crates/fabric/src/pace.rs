//! How fast KV leaves an engine, when that is bounded: all its links share one line.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use crate::expected::lock;

/// Unbounded until a limit is set.
#[derive(Default)]
pub(crate) struct Pace(Mutex<Line>);

#[derive(Default)]
struct Line {
    bytes_per_s: Option<u64>,
    /// Until then it carries what was sent before.
    busy_until: Option<Instant>,
}

impl Pace {
    pub(crate) fn limit(&self, bytes_per_s: u64) {
        lock(&self.0).bytes_per_s = Some(bytes_per_s.max(1));
    }

    /// When these bytes, and all before them, have travelled; `None` without a bound.
    pub(crate) fn arrival(&self, bytes: usize) -> Option<Instant> {
        lock(&self.0).arrival(Instant::now(), bytes)
    }
}

impl Line {
    fn arrival(&mut self, now: Instant, bytes: usize) -> Option<Instant> {
        let travel = Duration::from_secs_f64(bytes as f64 / self.bytes_per_s? as f64);
        self.busy_until = Some(self.busy_until.map_or(now, |busy| busy.max(now)) + travel);
        self.busy_until
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_travel_one_after_the_other() {
        let zero = Instant::now();
        let ms = |ms| zero + Duration::from_millis(ms);
        let mut line = Line { bytes_per_s: Some(1000), busy_until: None };
        // (at, bytes) → arrival
        for (at, bytes, arrival) in [(0, 100, 100), (10, 100, 200), (200, 5, 205), (900, 50, 950)] {
            assert_eq!(line.arrival(ms(at), bytes), Some(ms(arrival)), "{bytes} bytes at {at} ms");
        }
        assert_eq!(Line::default().arrival(zero, 100), None);
    }
}
