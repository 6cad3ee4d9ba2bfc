//! One engine at the moment of a decision, in numbers.

use std::time::Duration;

use baton_core::{PAGE_TOKENS, StepCosts, StepWork};

use super::learned::{Learned, Reported};
use crate::engine::{EngineId, Role};
use crate::pick::Pick;
use crate::roster::Roster;

/// Taken for engines that have not measured anything, as long as none has: about a large model on a large GPU.
const UNKNOWN: StepCosts = StepCosts {
    steps: 0,
    prefill_steps: 0,
    step_ns: 8_000_000,
    prefill_token_ns: 50_000,
    prefill_context_ps: 1000,
    sequence_ns: 50_000,
    context_ps: 5000,
    step_tokens: 2048,
};

/// Engines report at least this often, between two steps.
const REPORT_INTERVAL: Duration = Duration::from_millis(120);

/// Of two steps, whatever an engine says of its costs.
const LONGEST_STEPS_S: f64 = 60.0;

/// A share of prompts above this is not believed to last.
const MOST_PREFILL_SHARE: f64 = 0.9;

pub(super) struct EngineView {
    pub(super) pick: Pick,
    pub(super) state: EngineNow,
}

/// What predictions are made of.
#[derive(Clone, Debug)]
pub(super) struct EngineNow {
    pub(super) costs: StepCosts,
    pub(super) prefills: bool,
    pub(super) generates: bool,
    /// Failed the last attempt, or gives other bits than it: only when there is no other.
    pub(super) is_last_resort: bool,
    /// That run, or will in a moment.
    pub(super) sequences: u64,
    /// That wait for their prompts or for KV from another engine: they will run beside whoever comes now.
    pub(super) coming: u64,
    /// Tokens that their attention reads.
    pub(super) context_tokens: u64,
    /// Seconds until the prompts that it has are computed.
    pub(super) prefill_wait: f64,
    /// Share of the last seconds that prompts took.
    pub(super) prefill_share: f64,
    /// The most KV that was needed in the last minutes.
    pub(super) peak_kv_tokens: u64,
    /// Of this request's prompt.
    pub(super) cached_tokens: u64,
    /// KV that fits without anybody losing theirs.
    pub(super) free_tokens: u64,
}

impl EngineView {
    pub(super) fn all(roster: &Roster, learned: &Learned) -> Vec<Self> {
        let serving: Vec<EngineId> = roster.serving().iter().map(Pick::id).collect();
        let engines = roster.engines();
        let reports: Vec<_> = engines.iter().map(Pick::report).collect();
        learned.keep(&engines.iter().map(Pick::id).collect::<Vec<_>>());
        let typical = typical(reports.iter().map(|report| &report.costs));
        let context_in_front = learned.context_in_front();
        let mut views = Vec::with_capacity(reports.len());
        for (pick, report) in engines.iter().zip(&reports) {
            let load = report.load;
            let costs = known_or(&report.costs, &typical);
            let in_use = load.pages_total.saturating_sub(load.pages_free + load.pages_cached);
            let held = in_use.saturating_sub(load.reserved_pages);
            let kv_tokens = u64::from(in_use) * PAGE_TOKENS as u64;
            let reported = Reported { prefill_us: report.counters.prefill_us, kv_tokens };
            let recent = learned.recent_load(pick.id(), &reported, report_age(&costs), roster.now());
            let in_all = u64::from(pick.sequences());
            let sequences = in_all.min(u64::from(load.running) + recent.recent_sequences);
            let mut state = EngineNow {
                costs,
                prefills: pick.role() != Role::Decode,
                generates: serving.contains(&pick.id()),
                is_last_resort: roster.speaks_against(pick),
                sequences,
                coming: in_all - sequences,
                context_tokens: u64::from(held) * PAGE_TOKENS as u64,
                prefill_wait: 0.0,
                prefill_share: 0.0,
                peak_kv_tokens: recent.peak_kv_tokens,
                cached_tokens: pick.cached_tokens().into(),
                free_tokens: u64::from(load.pages_free + load.pages_cached) * PAGE_TOKENS as u64,
            };
            // What this router has in flight counts prompts whole until they are computed; what is left of them by the report
            // lacks the newest ones.
            let queued = pick.prefill_tokens().min(load.pending_prefill_tokens + recent.recent_tokens);
            state.prefill_wait = state.queue_time(queued, context_in_front);
            state.prefill_share = recent.prefill_share.min(MOST_PREFILL_SHARE);
            views.push(Self { pick: pick.clone(), state });
        }
        views
    }
}

impl EngineNow {
    /// Seconds from the first of these prompt tokens to the last, behind `computed` others, beside the sequences that decode.
    pub(super) fn prefill_time(&self, computed: u64, tokens: u64) -> f64 {
        self.steps_for(tokens) * self.step_time(0, 0) + self.costs.prefill_seconds(&StepWork::prefill(computed, tokens))
    }

    /// The same for prompts of which only the number of tokens is known.
    fn queue_time(&self, tokens: u64, context_in_front: f64) -> f64 {
        let context = (tokens as f64 * context_in_front) as u64;
        let work = StepWork { prefill_tokens: tokens, prefill_context: context, ..StepWork::default() };
        self.steps_for(tokens) * self.step_time(0, 0) + self.costs.prefill_seconds(&work)
    }

    /// Steps that prompt tokens take; each has room for at least as many as sequences leave.
    fn steps_for(&self, tokens: u64) -> f64 {
        let room = u64::from(self.costs.step_tokens).saturating_sub(self.sequences).max(1);
        tokens.div_ceil(room) as f64
    }

    /// What these prompt tokens add to the steps in which the sequences here decode.
    pub(super) fn prefill_delay(&self, computed: u64, tokens: u64) -> f64 {
        self.costs.prefill_seconds(&StepWork::prefill(computed, tokens))
    }

    /// A step that computes no prompt, with this number of sequences added.
    pub(super) fn step_time(&self, more_sequences: u64, more_context: u64) -> f64 {
        let work = StepWork::decode(self.sequences + more_sequences, self.context_tokens + more_context);
        self.costs.step_seconds(&work)
    }

    /// What one sequence adds to a step.
    pub(super) fn sequence_time(&self, context: u64) -> f64 {
        self.costs.decode_seconds(&StepWork::decode(1, context))
    }
}

/// How old an engine's newest report may be: steps come in between, and messages.
fn report_age(costs: &StepCosts) -> Duration {
    let longest_step = costs.step_seconds(&StepWork::prefill(0, costs.step_tokens.into()));
    REPORT_INTERVAL + Duration::from_secs_f64((2.0 * longest_step).min(LONGEST_STEPS_S))
}

type Measured = fn(&StepCosts) -> bool;

/// What engines that have measured found, on the average; each cost of those that know it.
fn typical<'a>(costs: impl Iterator<Item = &'a StepCosts> + Clone) -> StepCosts {
    let mean = |of: fn(&StepCosts) -> u64, measured: Measured, unknown: u64| {
        let known = costs.clone().filter(|costs| measured(costs)).map(of);
        let (sum, count) = known.fold((0u64, 0u64), |(sum, count), cost| (sum.saturating_add(cost), count + 1));
        sum.checked_div(count).unwrap_or(unknown)
    };
    let (steps, prompts): (Measured, Measured) = (has_measured_steps, has_measured_prompts);
    StepCosts {
        steps: 0,
        prefill_steps: 0,
        step_ns: mean(|costs| costs.step_ns, steps, UNKNOWN.step_ns),
        prefill_token_ns: mean(|costs| costs.prefill_token_ns, prompts, UNKNOWN.prefill_token_ns),
        prefill_context_ps: mean(|costs| costs.prefill_context_ps, prompts, UNKNOWN.prefill_context_ps),
        sequence_ns: mean(|costs| costs.sequence_ns, steps, UNKNOWN.sequence_ns),
        context_ps: mean(|costs| costs.context_ps, steps, UNKNOWN.context_ps),
        step_tokens: mean(|costs| costs.step_tokens.into(), |costs| costs.step_tokens > 0, UNKNOWN.step_tokens.into())
            as u32,
    }
}

fn known_or(costs: &StepCosts, typical: &StepCosts) -> StepCosts {
    let (decoding, prompts) = (
        if has_measured_steps(costs) { costs } else { typical },
        if has_measured_prompts(costs) { costs } else { typical },
    );
    StepCosts {
        step_ns: decoding.step_ns,
        sequence_ns: decoding.sequence_ns,
        context_ps: decoding.context_ps,
        prefill_token_ns: prompts.prefill_token_ns,
        prefill_context_ps: prompts.prefill_context_ps,
        step_tokens: if costs.step_tokens > 0 { costs.step_tokens } else { typical.step_tokens },
        ..*costs
    }
}

/// Steps that decode are most of an engine's; a few of them are enough.
fn has_measured_steps(costs: &StepCosts) -> bool {
    costs.steps > costs.prefill_steps + 8
}

fn has_measured_prompts(costs: &StepCosts) -> bool {
    costs.prefill_steps > 2
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Which costs an engine is believed to have: its own where it has measured, else those of engines that have.
    #[test]
    fn what_an_engine_has_not_measured_is_what_others_found() {
        let fresh = StepCosts { step_tokens: 512, ..StepCosts::default() };
        let prompts_only = StepCosts { steps: 9, prefill_steps: 9, prefill_token_ns: 10, step_ns: 1, ..fresh };
        let decoding_only = StepCosts { steps: 100, step_ns: 7, sequence_ns: 3, ..fresh };
        let both =
            StepCosts { steps: 100, prefill_steps: 50, step_ns: 9, sequence_ns: 5, prefill_token_ns: 20, ..fresh };
        // Engines → (step, sequence, prefill token) of the first, in ns.
        type Case<'a> = (&'a [StepCosts], (u64, u64, u64));
        let cases: [Case; 5] = [
            (&[fresh], (UNKNOWN.step_ns, UNKNOWN.sequence_ns, UNKNOWN.prefill_token_ns)),
            (&[fresh, both], (9, 5, 20)),
            (&[fresh, both, decoding_only], (8, 4, 20)),
            (&[prompts_only, decoding_only], (7, 3, 10)),
            (&[both, decoding_only, prompts_only], (9, 5, 20)),
        ];
        for (engines, expected) in cases {
            let costs = known_or(&engines[0], &typical(engines.iter()));
            assert_eq!((costs.step_ns, costs.sequence_ns, costs.prefill_token_ns), expected, "{engines:?}");
            assert_eq!(costs.step_tokens, 512);
        }
    }
}
