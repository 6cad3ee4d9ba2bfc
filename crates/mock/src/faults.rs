//! Injected faults, drawn from a seed so that a run can be repeated.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::config::FaultPlan;
use crate::history::mix;

/// Counts requests, steps and tokens; each count has its own random draw.
#[derive(Debug)]
pub(crate) struct Faults {
    plan: FaultPlan,
    requests: AtomicU64,
    steps: AtomicU64,
    tokens: AtomicU64,
}

impl Faults {
    pub(crate) fn new(plan: FaultPlan) -> Self {
        Self { plan, requests: AtomicU64::new(0), steps: AtomicU64::new(0), tokens: AtomicU64::new(0) }
    }

    /// Called once per request. Returns the number of tokens after which it fails, if it does.
    pub(crate) fn doom(&self) -> Option<u32> {
        let request = self.requests.fetch_add(1, Ordering::Relaxed);
        self.chance(1, request, self.plan.error_rate).then_some(self.plan.error_after_tokens)
    }

    /// Called once per step. Returns how long it stalls.
    pub(crate) fn stall(&self) -> Duration {
        let step = self.steps.fetch_add(1, Ordering::Relaxed) + 1;
        let due = self.plan.stall_every_steps.is_some_and(|every| step.is_multiple_of(every));
        if due || self.chance(2, step, self.plan.stall_rate) { self.plan.stall } else { Duration::ZERO }
    }

    /// Called once before each token. Returns whether the process crashes instead.
    pub(crate) fn crashes(&self) -> bool {
        let generated = self.tokens.fetch_add(1, Ordering::Relaxed);
        self.plan.crash_after_tokens.is_some_and(|after| generated >= after)
    }

    fn chance(&self, kind: u64, count: u64, rate: f64) -> bool {
        // An f64 holds integers of 53 bits exactly.
        let draw = mix(mix(self.plan.seed, kind), count) >> 11;
        (draw as f64) < rate * (1u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(seed: u64) -> FaultPlan {
        FaultPlan { error_rate: 0.1, error_after_tokens: 3, seed, ..FaultPlan::default() }
    }

    #[test]
    fn errors_come_at_their_rate_and_again_with_the_same_seed() {
        let draw = |seed| {
            let faults = Faults::new(plan(seed));
            (0..10_000).map(|_| faults.doom()).collect::<Vec<_>>()
        };
        let first = draw(1);
        let failed = first.iter().filter(|doom| **doom == Some(3)).count();
        assert!((900..1100).contains(&failed), "{failed}");
        assert_eq!(first, draw(1));
        assert_ne!(first, draw(2));
    }

    #[test]
    fn rates_of_none_and_all_are_exact() {
        for (error_rate, failing) in [(0.0, 0), (1.0, 1000)] {
            let faults = Faults::new(FaultPlan { error_rate, ..plan(5) });
            assert_eq!((0..1000).filter_map(|_| faults.doom()).count(), failing);
        }
    }

    #[test]
    fn every_third_step_stalls_and_the_fifth_token_crashes() {
        let stall = Duration::from_millis(9);
        let faults = FaultPlan { stall, stall_every_steps: Some(3), crash_after_tokens: Some(4), ..plan(0) };
        let faults = Faults::new(faults);
        let stalls: Vec<bool> = (0..7).map(|_| faults.stall() == stall).collect();
        assert_eq!(stalls, [false, false, true, false, false, true, false]);
        assert_eq!((0..5).map(|_| faults.crashes()).collect::<Vec<_>>(), [false, false, false, false, true]);
    }
}
