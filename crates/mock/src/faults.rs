//! What goes wrong, and when: drawn from a seed, so that a run can be repeated.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::config::FaultPlan;
use crate::history::mix;

/// Counts what has happened; each count has its own draw.
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

    /// Once per request: after how many tokens it fails, when it does.
    pub(crate) fn doom(&self) -> Option<u32> {
        let request = self.requests.fetch_add(1, Ordering::Relaxed);
        self.chance(1, request, self.plan.error_rate).then_some(self.plan.error_after_tokens)
    }

    /// Once per step: how long it stalls.
    pub(crate) fn stall(&self) -> Duration {
        let step = self.steps.fetch_add(1, Ordering::Relaxed) + 1;
        let due = self.plan.stall_every_steps.is_some_and(|every| step.is_multiple_of(every));
        if due || self.chance(2, step, self.plan.stall_rate) { self.plan.stall } else { Duration::ZERO }
    }

    /// Once per token, before it is said: whether everything ends instead.
    pub(crate) fn crashes(&self) -> bool {
        let said = self.tokens.fetch_add(1, Ordering::Relaxed);
        self.plan.crash_after_tokens.is_some_and(|after| said >= after)
    }

    fn chance(&self, kind: u64, count: u64, rate: f64) -> bool {
        // 53 bits are a whole number in an f64.
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
    fn every_third_step_stalls_and_the_fifth_token_is_never_said() {
        let stall = Duration::from_millis(9);
        let faults = FaultPlan { stall, stall_every_steps: Some(3), crash_after_tokens: Some(4), ..plan(0) };
        let faults = Faults::new(faults);
        let stalls: Vec<bool> = (0..7).map(|_| faults.stall() == stall).collect();
        assert_eq!(stalls, [false, false, true, false, false, true, false]);
        assert_eq!((0..5).map(|_| faults.crashes()).collect::<Vec<_>>(), [false, false, false, false, true]);
    }
}
