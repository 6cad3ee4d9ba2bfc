//! What a step takes, as a function of what it computes.

use serde::{Deserialize, Serialize};

/// What one step computes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StepWork {
    pub prefill_tokens: u64,
    /// Tokens in front of those, summed over them: what their attention reads.
    pub prefill_context: u64,
    /// Sequences that decode.
    pub sequences: u64,
    /// Tokens in front of theirs, summed over them.
    pub context: u64,
}

/// An engine's own measurements, fitted to its recent steps: a step takes the sum of these, each times what it is for. Whole
/// numbers, so that reports can be compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepCosts {
    /// Steps that were measured. With 0 the costs are not known.
    pub steps: u64,
    /// Of those, steps that computed prompts.
    pub prefill_steps: u64,
    /// Of every step.
    pub step_ns: u64,
    pub prefill_token_ns: u64,
    pub prefill_context_ps: u64,
    pub sequence_ns: u64,
    pub context_ps: u64,
    /// Most tokens that a step may compute.
    pub step_tokens: u32,
}

impl StepWork {
    /// `tokens` of a prompt, behind `computed` others.
    pub fn prefill(computed: u64, tokens: u64) -> Self {
        let context = tokens * computed + tokens * tokens.saturating_sub(1) / 2;
        Self { prefill_tokens: tokens, prefill_context: context, ..Self::default() }
    }

    /// The next token of sequences that have `context` tokens in all.
    pub fn decode(sequences: u64, context: u64) -> Self {
        Self { sequences, context, ..Self::default() }
    }
}

impl StepCosts {
    /// Of one step.
    pub fn step_seconds(&self, work: &StepWork) -> f64 {
        self.step_ns as f64 * 1e-9 + self.prefill_seconds(work) + self.decode_seconds(work)
    }

    /// What a step takes longer for the prompts it computes.
    pub fn prefill_seconds(&self, work: &StepWork) -> f64 {
        let (tokens, context) = (work.prefill_tokens as f64, work.prefill_context as f64);
        tokens * self.prefill_token_ns as f64 * 1e-9 + context * self.prefill_context_ps as f64 * 1e-12
    }

    /// What a step takes longer for the sequences that decode in it.
    pub fn decode_seconds(&self, work: &StepWork) -> f64 {
        let (sequences, context) = (work.sequences as f64, work.context as f64);
        sequences * self.sequence_ns as f64 * 1e-9 + context * self.context_ps as f64 * 1e-12
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_is_the_sum_of_what_it_computes() {
        let costs = StepCosts {
            steps: 1,
            prefill_steps: 1,
            step_ns: 5_000_000,
            prefill_token_ns: 40_000,
            prefill_context_ps: 1000,
            sequence_ns: 10_000,
            context_ps: 2000,
            step_tokens: 2048,
        };
        let cases = [
            (StepWork::default(), 0.005),
            // 100 tokens, and 0 + 1 + … + 99 in front of them.
            (StepWork::prefill(0, 100), 0.005 + 0.004 + 4950e-9),
            (StepWork::prefill(1000, 1), 0.005 + 0.000_04 + 1e-6),
            (StepWork::decode(8, 4000), 0.005 + 0.000_08 + 8e-6),
            (StepWork { sequences: 8, context: 4000, ..StepWork::prefill(1000, 1) }, 0.005 + 0.000_129),
        ];
        for (work, seconds) in cases {
            assert!((costs.step_seconds(&work) - seconds).abs() < 1e-9, "{work:?}: {}", costs.step_seconds(&work));
        }
    }
}
