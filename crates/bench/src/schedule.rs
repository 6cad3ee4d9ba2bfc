//! When it is sent. The times of an open loop follow from the rate and the seed and from nothing the server does.

use std::time::Duration;

use crate::quantity::Ramp;
use crate::random::Random;

/// Keeps arrivals apart from all other draws.
const ARRIVALS: u64 = 0xa1;

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Arrivals {
    /// This many users, each sending when its last request was answered.
    Closed { users: Ramp },
    /// Requests per second, whatever the server does.
    Open { rate: Ramp, spacing: Spacing },
    /// As in the trace.
    Trace,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Spacing {
    /// As many independent users would send: gaps are exponentially distributed
    Poisson,
    /// Evenly spaced
    Constant,
}

/// When requests stop being started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StopRule {
    After(Duration),
    Requests(u64),
    /// With the trace.
    AtTheEnd,
}

/// Endless arrival times. A ramp goes over `ramp_time` and then stays where it is.
///
/// Arrival k is where the integral of the rate reaches k (constant spacing), or the sum of k exponential draws (Poisson).
pub(crate) fn open_times(
    rate: Ramp,
    spacing: Spacing,
    ramp_time: Duration,
    seed: u64,
) -> impl Iterator<Item = Duration> + Send {
    let mut random = Random::new(seed, &[ARRIVALS]);
    let mut due = 0.0;
    std::iter::from_fn(move || {
        let time = Duration::try_from_secs_f64(reach(rate, ramp_time.as_secs_f64(), due)).ok();
        due += match spacing {
            Spacing::Poisson => random.exponential(),
            Spacing::Constant => 1.0,
        };
        time
    })
}

/// The time at which `count` requests were due: the t with from·t + (to − from)·t² / 2T = count for t ≤ T.
fn reach(rate: Ramp, ramp_s: f64, count: f64) -> f64 {
    let on_ramp = rate.mean() * ramp_s;
    if rate.is_constant() || ramp_s <= 0.0 {
        return count / rate.to;
    }
    if count >= on_ramp {
        return ramp_s + (count - on_ramp) / rate.to;
    }
    let slope = (rate.to - rate.from) / ramp_s;
    // The form that does not cancel for small slopes.
    2.0 * count / (rate.from + (rate.from * rate.from + 2.0 * slope * count).sqrt())
}

/// When each user of a closed loop begins: `from` of them at once, the others evenly over the ramp.
pub(crate) fn user_starts(users: Ramp, ramp_time: Duration) -> Vec<Duration> {
    let (first, last) = (users.from.min(users.to).max(1.0), users.to.max(1.0));
    (0..last.round() as u32)
        .map(|user| {
            let share = (f64::from(user) + 1.0 - first) / (last - first).max(1.0);
            ramp_time.mul_f64(share.clamp(0.0, 1.0))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(rate: &str, spacing: Spacing, seconds: u64) -> Vec<f64> {
        let ramp = Duration::from_secs(seconds);
        let all = open_times(rate.parse().unwrap(), spacing, ramp, 1);
        all.map(|time| time.as_secs_f64()).take_while(|time| *time < seconds as f64).collect()
    }

    #[test]
    fn constant_is_even() {
        assert_eq!(times("4", Spacing::Constant, 1), [0.0, 0.25, 0.5, 0.75]);
    }

    #[test]
    fn poisson_has_the_rate_and_the_spread() {
        let times = times("50", Spacing::Poisson, 200);
        assert!((9700..10_300).contains(&times.len()), "{}", times.len());
        let gaps: Vec<_> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let variance = gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / gaps.len() as f64;
        assert!((variance.sqrt() / mean - 1.0).abs() < 0.05, "an exponential's deviation is its mean");
    }

    #[test]
    fn ramps_send_what_they_promise() {
        for (rate, first_half, second_half) in [("10..30", 150, 250), ("30..10", 250, 150)] {
            let times = times(rate, Spacing::Constant, 20);
            let first = times.iter().filter(|time| **time < 10.0).count();
            assert!(
                first.abs_diff(first_half) <= 1 && (times.len() - first).abs_diff(second_half) <= 1,
                "{rate}: {first}"
            );
        }
    }

    #[test]
    fn users_join_one_by_one() {
        let starts = |users: &str| user_starts(users.parse().unwrap(), Duration::from_secs(6));
        assert_eq!(starts("3"), [Duration::ZERO; 3]);
        assert_eq!(starts("1..4").iter().map(Duration::as_secs).collect::<Vec<_>>(), [0, 2, 4, 6]);
    }
}
