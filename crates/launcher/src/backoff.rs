//! How long to wait before a crashed engine is started again. Pure: time comes from outside.

use std::time::Duration;

const FIRST: Duration = Duration::from_millis(200);
const LONGEST: Duration = Duration::from_secs(30);
/// An engine that has lived this long did not die of its start.
const HEALTHY: Duration = Duration::from_secs(60);

#[derive(Default)]
pub(crate) struct Backoff {
    crashes_in_a_row: u32,
}

impl Backoff {
    pub(crate) fn after_living(&mut self, lived: Duration) -> Duration {
        if lived >= HEALTHY {
            self.crashes_in_a_row = 0;
        }
        let delay = LONGEST.min(FIRST * (1 << self.crashes_in_a_row.min(16)));
        self.crashes_in_a_row += 1;
        delay
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doubles_to_its_cap_and_forgets_after_a_healthy_minute() {
        let mut backoff = Backoff::default();
        let delays_ms: Vec<_> = (0..9).map(|_| backoff.after_living(Duration::ZERO).as_millis()).collect();
        assert_eq!(delays_ms, [200, 400, 800, 1600, 3200, 6400, 12_800, 25_600, 30_000]);
        assert_eq!(backoff.after_living(Duration::from_secs(59)), LONGEST);
        assert_eq!(backoff.after_living(Duration::from_secs(60)), FIRST);
    }
}
