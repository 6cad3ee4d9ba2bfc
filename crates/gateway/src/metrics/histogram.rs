//! How long things take, in buckets from a fraction of a millisecond to minutes.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Upper bounds in seconds; one more bucket takes everything above.
pub(super) const BOUNDS_S: [f64; 16] =
    [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 120.0];

#[derive(Default)]
pub(super) struct Histogram {
    buckets: [AtomicU64; BOUNDS_S.len() + 1],
    sum_ns: AtomicU64,
}

pub(super) struct Snapshot {
    /// For each bound, and at last for infinity: how many took no longer.
    pub(super) cumulative: [u64; BOUNDS_S.len() + 1],
    pub(super) sum_s: f64,
}

impl Histogram {
    pub(super) fn observe(&self, duration: Duration) {
        let seconds = duration.as_secs_f64();
        let bucket = BOUNDS_S.iter().position(|bound| seconds <= *bound).unwrap_or(BOUNDS_S.len());
        self.buckets[bucket].fetch_add(1, Ordering::Relaxed);
        self.sum_ns.fetch_add(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    pub(super) fn snapshot(&self) -> Snapshot {
        let mut total = 0;
        let cumulative = self.buckets.each_ref().map(|bucket| {
            total += bucket.load(Ordering::Relaxed);
            total
        });
        Snapshot { cumulative, sum_s: self.sum_ns.load(Ordering::Relaxed) as f64 / 1e9 }
    }
}
