//! What a step costs on the simulated device: a linear model of what the step computes.

use std::time::Duration;

use baton_backend::{Segment, StepPlan};

/// Costs add up: a step that decodes and computes a chunk of a prompt takes as long as both together.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CostModel {
    /// Every step: reading the weights, launching kernels.
    pub step_us: f64,
    /// Each prompt token.
    pub prefill_token_us: f64,
    /// Each prompt token, for each token of its context: attention.
    pub prefill_context_ns: f64,
    /// Each sequence that decodes.
    pub decode_seq_us: f64,
    /// Each sequence that decodes, for each token of its context: reading its KV.
    pub decode_context_ns: f64,
}

/// What a step computes, as far as its cost depends on it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StepSize {
    pub prefill_tokens: u64,
    /// Sum over them of the tokens that each attends to, itself included.
    pub prefill_context: u64,
    pub decode_seqs: u64,
    /// Sum over them of the tokens that each attends to.
    pub decode_context: u64,
}

impl CostModel {
    pub fn step(&self, size: &StepSize) -> Duration {
        let us = self.step_us
            + self.prefill_token_us * size.prefill_tokens as f64
            + self.prefill_context_ns * size.prefill_context as f64 / 1e3
            + self.decode_seq_us * size.decode_seqs as f64
            + self.decode_context_ns * size.decode_context as f64 / 1e3;
        Duration::from_nanos((us * 1e3).round() as u64)
    }

    /// A prompt that an engine computes by itself, in steps of `step_tokens`.
    pub fn prompt(&self, tokens: u64, step_tokens: u64) -> Duration {
        let ends = (0..tokens).step_by(step_tokens.max(1) as usize);
        ends.map(|begin| {
            let mut size = StepSize::default();
            size.add(begin, step_tokens.min(tokens - begin));
            self.step(&size)
        })
        .sum()
    }
}

impl StepSize {
    pub(crate) fn of(plan: &StepPlan) -> Self {
        let mut size = Self::default();
        for Segment { tokens, first_position, .. } in &plan.segments {
            size.add(*first_position as u64, tokens.len() as u64);
        }
        size
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.prefill_tokens + self.decode_seqs == 0
    }

    /// Consecutive tokens of one sequence. The last token of a prompt whose KV is there costs what decoding one costs.
    fn add(&mut self, first_position: u64, tokens: u64) {
        if tokens == 1 {
            self.decode_seqs += 1;
            self.decode_context += first_position + 1;
        } else {
            self.prefill_tokens += tokens;
            self.prefill_context += tokens * first_position + tokens * (tokens + 1) / 2;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MODEL: CostModel = CostModel {
        step_us: 1000.0,
        prefill_token_us: 10.0,
        prefill_context_ns: 100.0,
        decode_seq_us: 50.0,
        decode_context_ns: 20.0,
    };

    /// Each as (first position, tokens).
    type Segments = &'static [(u64, u64)];

    #[test]
    fn costs_by_table() {
        let cases: [(&str, Segments, u64); 6] = [
            ("nothing but the step itself", &[], 1000),
            ("a token that is decoded", &[(999, 1)], 1000 + 50 + 20),
            ("two of them", &[(999, 1), (499, 1)], 1000 + 2 * 50 + 30),
            ("the beginning of a prompt", &[(0, 100)], 1000 + 1000 + 505),
            ("a chunk further on", &[(1000, 100)], 1000 + 1000 + 505 + 10_000),
            ("both kinds", &[(999, 1), (0, 100)], 1000 + 50 + 20 + 1000 + 505),
        ];
        for (what, segments, expected_us) in cases {
            let mut size = StepSize::default();
            for &(first_position, tokens) in segments {
                size.add(first_position, tokens);
            }
            assert_eq!(MODEL.step(&size), Duration::from_micros(expected_us), "{what}");
        }
    }

    #[test]
    fn a_prompt_pays_for_each_of_its_steps() {
        let whole = MODEL.prompt(200, 200);
        let halves = MODEL.prompt(200, 100);
        assert_eq!(halves - whole, Duration::from_millis(1));
        assert_eq!(MODEL.prompt(0, 100), Duration::ZERO);
    }
}
