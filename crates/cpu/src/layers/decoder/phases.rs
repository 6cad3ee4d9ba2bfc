//! The times of a step's phases, for benchmarks.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::weights::Phase;

/// Measures phases. A phase has ended when the first member leaves it: the system may keep others waiting.
pub struct PhaseClock {
    started: Instant,
    /// Nanoseconds since the start, in the order of [`place`].
    ends: Vec<AtomicU64>,
}

const PER_LAYER: usize = Phase::ALL.len() - 2;

/// `Embed`, then those of each layer, then `Logits`.
fn place(phase: Phase, layer: usize) -> usize {
    phase as usize + layer * PER_LAYER
}

impl PhaseClock {
    pub fn start(layers: usize) -> Self {
        let ends = place(Phase::Logits, layers.saturating_sub(1)) + 1;
        Self { started: Instant::now(), ends: (0..ends).map(|_| AtomicU64::new(u64::MAX)).collect() }
    }

    /// Called by every member that leaves the phase. `Embed` counts as the first layer's, `Logits` as the last one's.
    pub(crate) fn done(&self, phase: Phase, layer: usize) {
        let now = self.started.elapsed().as_nanos() as u64;
        self.ends[place(phase, layer)].fetch_min(now, Ordering::Relaxed);
    }

    /// The time of a phase in all layers, when the step is over.
    pub fn time(&self, phase: Phase) -> Duration {
        let end = |at: usize| self.ends[at].load(Ordering::Relaxed);
        let is_one = |at: &usize| match phase {
            Phase::Embed => *at == 0,
            Phase::Logits => at + 1 == self.ends.len(),
            _ => at + 1 < self.ends.len() && *at > 0 && (at - 1) % PER_LAYER + 1 == phase as usize,
        };
        let times =
            (0..self.ends.len()).filter(is_one).map(|at| end(at).saturating_sub(if at == 0 { 0 } else { end(at - 1) }));
        Duration::from_nanos(times.sum())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_place_is_of_one_phase() {
        let clock = PhaseClock::start(3);
        assert_eq!(clock.ends.len(), 1 + 3 * PER_LAYER + 1);
        for (at, end) in clock.ends.iter().enumerate() {
            end.store((at as u64 + 1) * 10, Ordering::Relaxed);
        }
        for phase in Phase::ALL {
            let times = if matches!(phase, Phase::Embed | Phase::Logits) { 1 } else { 3 };
            assert_eq!(clock.time(phase), Duration::from_nanos(times * 10), "{phase:?}");
        }
        assert_eq!((place(Phase::Embed, 0), place(Phase::Qkv, 0), place(Phase::Qkv, 1)), (0, 1, 7));
        assert_eq!((place(Phase::Down, 2), place(Phase::Logits, 2)), (18, 19));
    }

    #[test]
    fn the_first_to_leave_ends_a_phase() {
        let clock = PhaseClock::start(1);
        clock.done(Phase::Embed, 0);
        let first = clock.time(Phase::Embed);
        clock.done(Phase::Embed, 0);
        assert_eq!(clock.time(Phase::Embed), first);
    }
}
