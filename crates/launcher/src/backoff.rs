//! The delay before a crashed engine is started again, or a lost one is connected to again. Pure: time comes from outside.

use std::time::Duration;

const FIRST: Duration = Duration::from_millis(200);
/// Starting a process that crashes again costs the machine something.
const LONGEST_BEFORE_START: Duration = Duration::from_secs(30);
/// Connecting costs nothing, and a person who restarts an engine by hand waits for it.
const LONGEST_BEFORE_CONNECT: Duration = Duration::from_secs(2);
/// An engine that ran this long did not crash because of its start: the delays begin anew.
const HEALTHY: Duration = Duration::from_secs(60);

pub(crate) struct Backoff {
    longest: Duration,
    crashes_in_a_row: u32,
}

impl Backoff {
    pub(crate) fn before_starting() -> Self {
        Self { longest: LONGEST_BEFORE_START, crashes_in_a_row: 0 }
    }

    pub(crate) fn before_connecting() -> Self {
        Self { longest: LONGEST_BEFORE_CONNECT, crashes_in_a_row: 0 }
    }

    pub(crate) fn after_living(&mut self, lived: Duration) -> Duration {
        if lived >= HEALTHY {
            self.crashes_in_a_row = 0;
        }
        let delay = self.longest.min(FIRST * (1 << self.crashes_in_a_row.min(16)));
        self.crashes_in_a_row += 1;
        delay
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doubles_to_its_cap_and_forgets_after_a_healthy_minute() {
        let mut backoff = Backoff::before_starting();
        let delays_ms: Vec<_> = (0..9).map(|_| backoff.after_living(Duration::ZERO).as_millis()).collect();
        assert_eq!(delays_ms, [200, 400, 800, 1600, 3200, 6400, 12_800, 25_600, 30_000]);
        assert_eq!(backoff.after_living(Duration::from_secs(59)), LONGEST_BEFORE_START);
        assert_eq!(backoff.after_living(Duration::from_secs(60)), FIRST);
    }
}
