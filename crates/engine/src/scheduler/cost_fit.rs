//! Learns what steps take by least squares of relative errors, none of the costs below zero.

use std::time::Duration;

use baton_core::{StepCosts, StepWork};

const COSTS: usize = 5;

/// What each step leaves of the ones before it, among those of its kind: some hundred steps count.
const MEMORY: f64 = 0.998;

/// Steps between two fits.
const FIT_EVERY: u64 = 16;

/// Of what a step should take: shorter ones count as if they took this much.
const LEAST_SHARE: f64 = 0.2;

/// Sweeps over all costs in one fit, which begins with the costs of the last.
const SWEEPS: usize = 60;

/// What steps of one kind cannot tell apart is the first of these that they have: the cost of prompt tokens, then the cost of
/// any step.
const ORDER: [usize; COSTS] = [1, 0, 2, 3, 4];

/// Keeps costs that no step has told apart from growing at each other's expense.
const RIDGE: f64 = 1e-5;

/// A typical step's work, so that all costs are numbers of one size.
const SCALES: [f64; COSTS] = [1.0, 256.0, 262_144.0, 8.0, 8192.0];

#[derive(Default)]
pub(super) struct CostFit {
    /// Apart, so that thousands of decoding steps do not make the cost of a prompt forgotten.
    decoding: Moments,
    prefilling: Moments,
    /// Seconds, of [`SCALES`].
    costs: [f64; COSTS],
    steps: u64,
    prefill_steps: u64,
}

/// Sums over steps of products of their work, by which the fit sees them.
#[derive(Default)]
struct Moments {
    work: [[f64; COSTS]; COSTS],
    seconds: [f64; COSTS],
}

impl CostFit {
    /// A step took this long. Returns the part that prompts took.
    pub(super) fn step(&mut self, work: &StepWork, took: Duration) -> Duration {
        let seconds = took.as_secs_f64();
        if seconds <= 0.0 {
            return Duration::ZERO;
        }
        self.steps += 1;
        // A step that seems to take no time, as when two are collected at once, must not outweigh all others.
        let counted = seconds.max(LEAST_SHARE * self.costs(0).step_seconds(work));
        if work.prefill_tokens > 0 {
            self.prefill_steps += 1;
            self.prefilling.add(work, seconds, counted);
        } else {
            self.decoding.add(work, seconds, counted);
        }
        if self.steps <= FIT_EVERY || self.steps.is_multiple_of(FIT_EVERY) {
            self.fit();
        }
        let (costs, prompts) = (self.costs(0), StepWork { sequences: 0, context: 0, ..*work });
        let (prefill, all) = (costs.prefill_seconds(&prompts), costs.step_seconds(work));
        if work.sequences == 0 && work.prefill_tokens > 0 {
            took
        } else if all > 0.0 {
            took.mul_f64((prefill / all).clamp(0.0, 1.0))
        } else {
            Duration::ZERO
        }
    }

    pub(super) fn costs(&self, step_tokens: usize) -> StepCosts {
        let cost = |nth: usize, per_second: f64| (self.costs[nth] / SCALES[nth] * per_second) as u64;
        StepCosts {
            steps: self.steps,
            prefill_steps: self.prefill_steps,
            step_ns: cost(0, 1e9),
            prefill_token_ns: cost(1, 1e9),
            prefill_context_ps: cost(2, 1e12),
            sequence_ns: cost(3, 1e9),
            context_ps: cost(4, 1e12),
            step_tokens: step_tokens as u32,
        }
    }

    /// Coordinate descent: each cost in turn is the best one, given the others.
    fn fit(&mut self) {
        for _ in 0..SWEEPS {
            for nth in ORDER {
                let row = |moments: &Moments| {
                    let others: f64 =
                        (0..COSTS).filter(|&at| at != nth).map(|at| moments.work[nth][at] * self.costs[at]).sum();
                    (moments.work[nth][nth], moments.seconds[nth] - others)
                };
                let ((here, left), (there, right)) = (row(&self.decoding), row(&self.prefilling));
                let (square, product) = (here + there, left + right);
                if square > 0.0 {
                    self.costs[nth] = (product / (square * (1.0 + RIDGE))).max(0.0);
                }
            }
        }
    }
}

impl Moments {
    fn add(&mut self, work: &StepWork, seconds: f64, counted: f64) {
        let work = [1, work.prefill_tokens, work.prefill_context, work.sequences, work.context];
        let scaled: [f64; COSTS] = std::array::from_fn(|nth| work[nth] as f64 / SCALES[nth]);
        // An error counts by its share of the step, so that short steps count as much as long ones.
        let weight = 1.0 / (counted * counted);
        for (row, x) in self.work.iter_mut().zip(scaled) {
            for (sum, y) in row.iter_mut().zip(scaled) {
                *sum = *sum * MEMORY + weight * x * y;
            }
        }
        for (sum, x) in self.seconds.iter_mut().zip(scaled) {
            *sum = *sum * MEMORY + weight * x * seconds;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRUE: StepCosts = StepCosts {
        steps: 0,
        prefill_steps: 0,
        step_ns: 6_000_000,
        prefill_token_ns: 40_000,
        prefill_context_ps: 2000,
        sequence_ns: 30_000,
        context_ps: 3000,
        step_tokens: 0,
    };

    /// Every third step computes a part of a prompt; loads rise and fall.
    fn steps() -> impl Iterator<Item = StepWork> {
        (0..3000u64).map(|at| {
            let (sequences, length) = (1 + at * 7 % 29, 200 + at * 131 % 1900);
            let decode = StepWork::decode(sequences, sequences * length);
            match at % 3 {
                0 => {
                    let prefill = StepWork::prefill(at * 512 % 4096, 64 + at * 37 % 1984);
                    StepWork { sequences: decode.sequences, context: decode.context, ..prefill }
                }
                _ => decode,
            }
        })
    }

    #[test]
    fn steps_are_predicted_after_a_few_hundred() {
        let mut fit = CostFit::default();
        for (at, work) in steps().enumerate() {
            // One step in forty takes four times as long for some other reason.
            let disturbed = if at % 40 == 7 { 4.0 } else { 1.0 };
            fit.step(&work, Duration::from_secs_f64(TRUE.step_seconds(&work) * disturbed));
        }
        let costs = fit.costs(512);
        let errors = steps().map(|work| costs.step_seconds(&work) / TRUE.step_seconds(&work) - 1.0);
        let worst = errors.map(f64::abs).fold(0.0, f64::max);
        assert!(worst < 0.15, "{worst}: {costs:?}");
    }

    #[test]
    fn a_prompt_s_cost_is_not_forgotten_while_none_comes() {
        let mut fit = CostFit::default();
        let prompt = StepWork::prefill(0, 512);
        for _ in 0..20 {
            fit.step(&prompt, Duration::from_secs_f64(TRUE.step_seconds(&prompt)));
        }
        for _ in 0..50_000 {
            let work = StepWork::decode(4, 4000);
            fit.step(&work, Duration::from_secs_f64(TRUE.step_seconds(&work)));
        }
        let (predicted, real) = (fit.costs(512).step_seconds(&prompt), TRUE.step_seconds(&prompt));
        assert!((predicted / real - 1.0).abs() < 0.1, "{predicted} {real}");
    }

    /// A prefill engine's first steps are all alike.
    #[test]
    fn steps_that_are_alike_are_explained_by_what_they_compute() {
        let mut fit = CostFit::default();
        let prompt = StepWork::prefill(0, 512);
        for _ in 0..4 {
            fit.step(&prompt, Duration::from_millis(20));
        }
        let costs = fit.costs(512);
        assert!(costs.prefill_token_ns > 35_000, "{costs:?}");
        let mut fit = CostFit::default();
        let decode = StepWork::decode(4, 2000);
        for _ in 0..4 {
            fit.step(&decode, Duration::from_millis(20));
        }
        let costs = fit.costs(512);
        assert!(costs.step_ns > 19_000_000, "{costs:?}");
    }

    #[test]
    fn a_step_without_time_changes_little() {
        let mut fit = CostFit::default();
        let decode = StepWork::decode(4, 2000);
        for at in 0..600 {
            fit.step(&decode, Duration::from_micros(if at == 500 { 1 } else { 10_000 }));
        }
        let took = fit.costs(0).step_seconds(&decode);
        assert!((0.008..0.0105).contains(&took), "{took}");
    }

    #[test]
    fn the_share_of_prompts_is_what_they_add_to_a_step() {
        let mut fit = CostFit::default();
        let (mut prefill, mut real) = (0.0, 0.0);
        for work in steps() {
            let seconds = TRUE.step_seconds(&work);
            prefill += fit.step(&work, Duration::from_secs_f64(seconds)).as_secs_f64();
            real += TRUE.prefill_seconds(&work);
        }
        assert!((prefill / real - 1.0).abs() < 0.1, "{prefill} {real}");
        let alone = StepWork::prefill(0, 100);
        assert_eq!(fit.step(&alone, Duration::from_millis(9)), Duration::from_millis(9));
        assert_eq!(fit.step(&alone, Duration::ZERO), Duration::ZERO);
    }
}
