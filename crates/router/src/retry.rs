//! How long a request is carried on after failures. Pure: time and randomness come from outside.

use std::time::Duration;

use baton_core::{Fault, Retry, ServeError};

#[derive(Clone, Debug)]
pub struct RetryPolicy {
    /// Over the request's whole life.
    pub max_attempts: u32,
    /// Longest time without progress once something has failed, or while no engine is there.
    pub max_outage: Duration,
    /// The same for a request that finds all engines full before its first token: the client may prefer to go elsewhere.
    pub max_busy: Duration,
    /// Longest an engine may send nothing for a request; it sends nothing for queued ones either, so this is long.
    pub max_silence: Duration,
    pub first_backoff: Duration,
    pub max_backoff: Duration,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self {
            max_attempts: 16,
            max_outage: Duration::from_secs(30),
            max_busy: Duration::from_secs(2),
            max_silence: Duration::from_secs(600),
            first_backoff: Duration::from_millis(20),
            max_backoff: Duration::from_secs(2),
        }
    }
}

pub(crate) struct Patience {
    policy: RetryPolicy,
    random: SplitMix,
    failures_total: u32,
    failures_in_a_row: u32,
    outage_began: Option<Duration>,
}

impl Patience {
    pub(crate) fn new(policy: RetryPolicy, seed: u64) -> Self {
        Self { policy, random: SplitMix(seed), failures_total: 0, failures_in_a_row: 0, outage_began: None }
    }

    pub(crate) fn policy(&self) -> &RetryPolicy {
        &self.policy
    }

    pub(crate) fn progressed(&mut self) {
        self.failures_in_a_row = 0;
        self.outage_began = None;
    }

    /// How much longer an engine may be waited for.
    pub(crate) fn remaining(&mut self, now: Duration) -> Duration {
        let began = *self.outage_began.get_or_insert(now);
        (began + self.policy.max_outage).saturating_sub(now)
    }

    /// How long to wait before the next attempt, or the error that the client gets.
    pub(crate) fn after(&mut self, error: &ServeError, begun: bool, now: Duration) -> Result<Duration, ServeError> {
        let at_least = match error.retry {
            Retry::Never => return Err(error.clone()),
            Retry::Elsewhere => Duration::ZERO,
            Retry::AfterMs(ms) => Duration::from_millis(ms.into()),
        };
        self.failures_total += 1;
        self.failures_in_a_row += 1;
        let delay = at_least + self.backoff();
        let patience = match error.fault {
            Fault::Capacity if !begun => self.policy.max_busy,
            _ => self.policy.max_outage,
        };
        let began = *self.outage_began.get_or_insert(now);
        if self.failures_total >= self.policy.max_attempts || now + delay > began + patience {
            return Err(self.exhausted(error));
        }
        Ok(delay)
    }

    /// `first_backoff × 2^failures`, capped, of which a random part between a half and all.
    fn backoff(&mut self) -> Duration {
        let doublings = (self.failures_in_a_row - 1).min(16);
        let full = self.policy.max_backoff.min(self.policy.first_backoff * (1 << doublings));
        full.mul_f64(0.5 + 0.5 * self.random.unit())
    }

    /// Nothing here can help any more, but the client may try again later.
    fn exhausted(&self, error: &ServeError) -> ServeError {
        let retry = match error.retry {
            Retry::Elsewhere => Retry::AfterMs(1000),
            other => other,
        };
        let message = match self.failures_total {
            1 => error.message.clone(),
            failures => format!("{} (after {failures} attempts)", error.message),
        };
        ServeError { retry, message, ..error.clone() }
    }
}

/// SplitMix64 (Steele, Lea, Flood 2014).
struct SplitMix(u64);

impl SplitMix {
    /// In [0, 1).
    fn unit(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: fn(u64) -> Duration = Duration::from_millis;

    fn patience() -> Patience {
        let policy = RetryPolicy {
            max_attempts: 8,
            max_outage: MS(10_000),
            max_busy: MS(1000),
            max_silence: MS(60_000),
            first_backoff: MS(100),
            max_backoff: MS(800),
        };
        Patience::new(policy, 7)
    }

    #[test]
    fn back_off_doubles_up_to_its_cap_and_starts_over_after_progress() {
        let mut patience = patience();
        let error = ServeError::engine("gone");
        for full in [100, 200, 400, 800, 800] {
            let delay = patience.after(&error, true, MS(0)).unwrap();
            assert!((MS(full / 2)..=MS(full)).contains(&delay), "{delay:?} of {full} ms");
        }
        patience.progressed();
        assert!(patience.after(&error, true, MS(9000)).unwrap() <= MS(100));
    }

    #[test]
    fn equal_seeds_wait_equally_long() {
        let delays = || {
            let mut patience = patience();
            [(); 4].map(|()| patience.after(&ServeError::engine("gone"), true, MS(0)).unwrap())
        };
        assert_eq!(delays(), delays());
    }

    #[test]
    fn what_the_caller_did_wrong_is_not_tried_again() {
        let error = ServeError::caller("too long").about("prompt");
        assert_eq!(patience().after(&error, false, MS(0)), Err(error));
    }

    #[test]
    fn attempts_are_bounded() {
        let mut patience = patience();
        let error = ServeError::engine("gone");
        let attempts = (1..).find(|_| {
            patience.progressed();
            patience.after(&error, true, MS(0)).is_err()
        });
        assert_eq!(attempts, Some(8));
        let last = patience.after(&error, true, MS(0)).unwrap_err();
        assert_eq!((last.message.as_str(), last.retry), ("gone (after 9 attempts)", Retry::AfterMs(1000)));
    }

    #[test]
    fn time_without_progress_is_bounded() {
        for (error, begun, last_ms) in [
            (ServeError::engine("gone"), false, 10_000),
            (ServeError::busy("full", 0), true, 10_000),
            (ServeError::busy("full", 0), false, 1000),
        ] {
            for (second_ms, goes_on) in [(last_ms - 200, true), (last_ms, false)] {
                let mut patience = patience();
                patience.after(&error, begun, MS(0)).unwrap();
                assert_eq!(patience.after(&error, begun, MS(second_ms)).is_ok(), goes_on, "{error} at {second_ms} ms");
            }
        }
        let mut patience = patience();
        assert_eq!(patience.remaining(MS(500)), MS(10_000));
        assert_eq!(patience.remaining(MS(4500)), MS(6000));
        assert_eq!(patience.remaining(MS(90_000)), MS(0));
    }
}
