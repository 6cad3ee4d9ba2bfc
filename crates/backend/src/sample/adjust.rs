//! What changes single logits before anything is filtered: bias, penalties, and stop tokens that must wait.

use baton_core::TokenId;

use crate::SamplerSpec;

#[derive(Debug)]
pub(super) struct Adjustments {
    bias: Vec<(TokenId, f32)>,
    penalties: Penalties,
    /// Ascending by token; empty where no penalty looks at it.
    seen: Vec<Seen>,
    min_tokens: u64,
    stop_tokens: Vec<TokenId>,
}

#[derive(Clone, Copy, Debug)]
struct Penalties {
    repetition: f32,
    presence: f32,
    frequency: f32,
}

/// A token of the prompt or of the output.
#[derive(Clone, Copy, Debug)]
struct Seen {
    token: TokenId,
    outputs: u32,
}

impl Adjustments {
    pub(super) fn new(spec: &SamplerSpec, vocab: usize) -> Self {
        let params = &spec.params;
        let penalties = Penalties {
            repetition: params.repetition_penalty,
            presence: params.presence_penalty,
            frequency: params.frequency_penalty,
        };
        let known = |token: &TokenId| token.index() < vocab;
        let mut seen: Vec<Seen> = Vec::new();
        if penalties.repetition != 1.0 {
            seen.extend(
                spec.prompt.iter().filter(|token| known(token)).map(|token| Seen { token: *token, outputs: 0 }),
            );
            seen.sort_unstable_by_key(|seen| seen.token);
            seen.dedup_by_key(|seen| seen.token);
        }
        let mut adjustments = Self {
            bias: params.logit_bias.iter().filter(|(token, _)| known(token)).copied().collect(),
            penalties,
            seen,
            min_tokens: u64::from(spec.min_tokens),
            stop_tokens: spec.stop_tokens.iter().filter(|token| known(token)).copied().collect(),
        };
        for token in spec.outputs.iter().filter(|token| known(token)) {
            adjustments.generated(*token);
        }
        adjustments
    }

    /// `logits` has an entry for every token of the vocabulary; `outputs` tokens exist already. Returns whether it may have
    /// changed any.
    pub(super) fn apply(&self, logits: &mut [f32], outputs: u64) -> bool {
        for (token, bias) in &self.bias {
            logits[token.index()] += bias;
        }
        for seen in &self.seen {
            let logit = &mut logits[seen.token.index()];
            *logit = self.penalties.applied(*logit, seen.outputs);
        }
        let too_early = outputs < self.min_tokens;
        if too_early {
            for token in &self.stop_tokens {
                logits[token.index()] = f32::NEG_INFINITY;
            }
        }
        too_early || !self.bias.is_empty() || !self.seen.is_empty()
    }

    pub(super) fn generated(&mut self, token: TokenId) {
        if self.penalties.change_nothing() {
            return;
        }
        match self.seen.binary_search_by_key(&token, |seen| seen.token) {
            Ok(found) => self.seen[found].outputs = self.seen[found].outputs.saturating_add(1),
            Err(place) => self.seen.insert(place, Seen { token, outputs: 1 }),
        }
    }
}

impl Penalties {
    fn change_nothing(self) -> bool {
        self.repetition == 1.0 && self.presence == 0.0 && self.frequency == 0.0
    }

    fn applied(self, logit: f32, outputs: u32) -> f32 {
        let repeated = if logit < 0.0 { logit * self.repetition } else { logit / self.repetition };
        if outputs == 0 { repeated } else { repeated - (self.presence + self.frequency * outputs as f32) }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use baton_core::{Choice, SamplingParams};

    use super::*;

    #[test]
    fn each_parameter_by_table() {
        let none = SamplingParams::greedy();
        let stops = f32::NEG_INFINITY;
        // Prompt: tokens 0, 1, 0. Outputs: tokens 1, 2, 2. Logits: 4, -4, 2, 1.
        let table = [
            (none.clone(), 0, [4.0, -4.0, 2.0, 1.0]),
            (
                SamplingParams { logit_bias: vec![(TokenId(1), 5.0), (TokenId(9), 1.0)], ..none.clone() },
                0,
                [4.0, 1.0, 2.0, 1.0],
            ),
            (SamplingParams { repetition_penalty: 2.0, ..none.clone() }, 0, [2.0, -8.0, 1.0, 1.0]),
            (SamplingParams { presence_penalty: 0.5, ..none.clone() }, 0, [4.0, -4.5, 1.5, 1.0]),
            (SamplingParams { frequency_penalty: 0.5, ..none.clone() }, 0, [4.0, -4.5, 1.0, 1.0]),
            (SamplingParams { frequency_penalty: -0.5, ..none.clone() }, 0, [4.0, -3.5, 3.0, 1.0]),
            // Bias first (0 → 1), then repetition (1 → 0.5), then presence and frequency on what was generated.
            (
                SamplingParams {
                    logit_bias: vec![(TokenId(0), -3.0)],
                    repetition_penalty: 2.0,
                    presence_penalty: 1.0,
                    frequency_penalty: 1.0,
                    ..none.clone()
                },
                0,
                [0.5, -10.0, -2.0, 1.0],
            ),
            (none.clone(), 3, [4.0, -4.0, 2.0, 1.0]),
            (none.clone(), 4, [4.0, -4.0, 2.0, stops]),
        ];
        for (params, min_tokens, expected) in table {
            let spec = SamplerSpec {
                params,
                choice: Choice(0),
                prompt: Arc::from([0, 1, 0].map(TokenId)),
                outputs: [1, 2, 2].map(TokenId).to_vec(),
                min_tokens,
                stop_tokens: vec![TokenId(3), TokenId(77)],
                logprobs: None,
            };
            let mut logits = [4.0, -4.0, 2.0, 1.0];
            Adjustments::new(&spec, 4).apply(&mut logits, 3);
            assert_eq!(logits, expected, "{spec:?}");
        }
    }
}
