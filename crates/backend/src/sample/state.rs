//! One sequence's sampler.

use baton_core::{Choice, SamplingParams, TokenId, TokenLogprobs};

use super::adjust::Adjustments;
use super::draw::draw;
use super::random::uniform;
use super::ranking::argmax;
use super::softmax::finite_max;
use super::{SampleScratch, token_logprobs};
use crate::{CannotSample, SamplerSpec, TokenMask};

#[derive(Debug)]
pub struct SamplerState {
    params: SamplingParams,
    choice: Choice,
    adjustments: Adjustments,
    logprobs: Option<u32>,
    /// Outputs so far: the position that randomness depends on.
    outputs: u64,
}

impl SamplerState {
    pub fn new(spec: &SamplerSpec, vocab: usize) -> Self {
        Self {
            params: spec.params.clone(),
            choice: spec.choice,
            adjustments: Adjustments::new(spec, vocab),
            logprobs: spec.logprobs,
            outputs: spec.outputs.len() as u64,
        }
    }

    /// Chooses the next output from one row of logits, which are scratch afterwards.
    pub fn sample(
        &mut self,
        logits: &mut [f32],
        mask: Option<&TokenMask>,
        scratch: &mut SampleScratch,
    ) -> (Result<TokenId, CannotSample>, Option<TokenLogprobs>) {
        let token = match self.choose(logits, mask, scratch) {
            Ok(token) => token,
            Err(error) => return (Err(error), None),
        };
        let logprobs = self.logprobs.map(|top| {
            let raw = std::mem::take(&mut scratch.raw);
            let logprobs = token_logprobs(&raw, token, top, scratch);
            scratch.raw = raw;
            logprobs
        });
        self.adjustments.generated(token);
        self.outputs += 1;
        (Ok(token), logprobs)
    }

    fn choose(
        &self,
        logits: &mut [f32],
        mask: Option<&TokenMask>,
        scratch: &mut SampleScratch,
    ) -> Result<TokenId, CannotSample> {
        let mut max = finite_max(logits)?;
        if self.logprobs.is_some() {
            scratch.raw.clear();
            scratch.raw.extend_from_slice(logits);
        }
        let adjusted = self.adjustments.apply(logits, self.outputs);
        mask.inspect(|mask| mask.apply(logits));
        if adjusted || mask.is_some() {
            // Which can overflow, or mask every token.
            let nothing = |error| {
                let masked = logits.iter().all(|logit| *logit == f32::NEG_INFINITY);
                if masked { CannotSample::NothingAllowed } else { error }
            };
            max = finite_max(logits).map_err(nothing)?;
        }
        if self.params.temperature == 0.0 {
            return Ok(argmax(logits, max));
        }
        let uniform = uniform(self.params.seed, self.choice, self.outputs);
        Ok(draw(logits, max, &self.params, uniform, scratch))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn spec(params: SamplingParams) -> SamplerSpec {
        SamplerSpec {
            params,
            choice: Choice(0),
            prompt: Arc::from([TokenId(1)]),
            outputs: Vec::new(),
            min_tokens: 0,
            stop_tokens: Vec::new(),
            logprobs: None,
        }
    }

    fn sampled(seed: u64) -> SamplingParams {
        SamplingParams { temperature: 1.0, seed, ..SamplingParams::greedy() }
    }

    fn run(spec: &SamplerSpec, logits: &[f32], tokens: usize) -> Vec<TokenId> {
        let (mut state, mut scratch) = (SamplerState::new(spec, logits.len()), SampleScratch::default());
        (0..tokens).map(|_| state.sample(&mut logits.to_vec(), None, &mut scratch).0.unwrap()).collect()
    }

    fn ids_of(tokens: &[u32]) -> Vec<TokenId> {
        tokens.iter().copied().map(TokenId).collect()
    }

    fn ids<const N: usize>(tokens: [u32; N]) -> [TokenId; N] {
        tokens.map(TokenId)
    }

    #[test]
    fn greedy_takes_the_lowest_of_the_best() {
        let mut long = [1.0; 200];
        (long[133], long[170]) = (3.0, 3.0);
        let table: [(&[f32], u32); 6] = [
            (&[1.0, 3.0, 2.0], 1),
            (&[1.0, 3.0, 3.0], 1),
            (&[-0.0, 0.0], 0),
            (&[f32::NEG_INFINITY, -5.0], 1),
            (&[2.0; 40], 0),
            (&long, 133),
        ];
        for (logits, token) in table {
            assert_eq!(run(&spec(SamplingParams::greedy()), logits, 1), ids([token]), "{logits:?}");
        }
    }

    #[test]
    fn a_resumed_sequence_goes_on_as_if_it_had_never_stopped() {
        let logits: Vec<f32> = (0..100).map(|token| (token as f32 * 0.7).sin()).collect();
        let params = SamplingParams { frequency_penalty: 0.5, repetition_penalty: 1.2, ..sampled(7) };
        let whole = run(&spec(params.clone()), &logits, 50);
        for accepted in [0, 1, 17, 49] {
            let resumed = SamplerSpec { outputs: whole[..accepted].to_vec(), ..spec(params.clone()) };
            assert_eq!(run(&resumed, &logits, 50 - accepted), whole[accepted..], "after {accepted}");
        }
    }

    #[test]
    fn seeds_and_choices_differ() {
        let logits = [0.0; 1000];
        let first = run(&spec(sampled(1)), &logits, 8);
        assert_eq!(first, run(&spec(sampled(1)), &logits, 8));
        assert_ne!(first, run(&spec(sampled(2)), &logits, 8));
        assert_ne!(first, run(&SamplerSpec { choice: Choice(1), ..spec(sampled(1)) }, &logits, 8));
    }

    #[test]
    fn penalties_follow_the_output() {
        // Each choice of a token costs it 1: the best three take turns.
        let params = SamplingParams { frequency_penalty: 1.0, ..SamplingParams::greedy() };
        assert_eq!(run(&spec(params), &[2.9, 2.5, 2.0, -9.0], 6), ids([0, 1, 2, 0, 1, 2]));
        let params = SamplingParams { presence_penalty: 1.0, ..SamplingParams::greedy() };
        assert_eq!(run(&spec(params), &[2.9, 2.5, 2.0, -9.0], 4), ids([0, 1, 2, 0]));
        // The prompt is token 1: the repetition penalty looks at it too.
        let params = SamplingParams { repetition_penalty: 2.0, ..SamplingParams::greedy() };
        assert_eq!(run(&spec(params), &[1.0, 1.9, -1.0], 2), ids([0, 1]));
    }

    #[test]
    fn stop_tokens_wait_for_min_tokens() {
        let spec = SamplerSpec { min_tokens: 2, stop_tokens: vec![TokenId(0)], ..spec(SamplingParams::greedy()) };
        assert_eq!(run(&spec, &[9.0, 1.0], 3), ids([1, 1, 0]));
    }

    #[test]
    fn logits_that_are_no_distribution_are_refused_and_leave_no_trace() {
        const INF: f32 = f32::INFINITY;
        let mut state = SamplerState::new(&SamplerSpec { logprobs: Some(1), ..spec(sampled(3)) }, 3);
        let mut scratch = SampleScratch::default();
        for mut logits in [[0.0, f32::NAN, 1.0], [-INF; 3], [INF, 0.0, 0.0]] {
            assert_eq!(state.sample(&mut logits, None, &mut scratch), (Err(CannotSample::NotFinite), None));
        }
        let token = state.sample(&mut [0.0, 0.5, 1.0], None, &mut scratch).0.unwrap();
        assert_eq!(run(&spec(sampled(3)), &[0.0, 0.5, 1.0], 1), [token]);
    }

    #[test]
    fn everything_masked_is_not_a_choice() {
        let spec = SamplerSpec { min_tokens: 1, stop_tokens: ids([0, 1]).to_vec(), ..spec(SamplingParams::greedy()) };
        let mut state = SamplerState::new(&spec, 2);
        let mut sample =
            |mask: Option<&TokenMask>| state.sample(&mut [1.0, 2.0], mask, &mut SampleScratch::default()).0;
        assert_eq!(sample(None), Err(CannotSample::NothingAllowed));
        assert_eq!(sample(Some(&TokenMask::default())), Err(CannotSample::NothingAllowed));
    }

    #[test]
    fn a_mask_changes_the_choice_and_no_logprob() {
        let logits = [2f32.ln(), 0.0, 0.0, f32::NEG_INFINITY];
        let spec = SamplerSpec { logprobs: Some(1), ..spec(SamplingParams::greedy()) };
        let cases = [(None, Ok(0)), (Some([1, 2].as_slice()), Ok(1)), (Some(&[3]), Err(CannotSample::NothingAllowed))];
        for (allowed, expected) in cases {
            let mask: Option<TokenMask> = allowed.map(|allowed| ids_of(allowed).into_iter().collect());
            let mut state = SamplerState::new(&spec, 4);
            let (token, logprobs) = state.sample(&mut logits.clone(), mask.as_ref(), &mut SampleScratch::default());
            assert_eq!(token, expected.map(TokenId));
            assert!(logprobs.is_none_or(|logprobs| logprobs.top[0].token == TokenId(0)));
        }
    }

    #[test]
    fn logprobs_are_of_the_model_not_of_the_parameters() {
        let params = SamplingParams { logit_bias: vec![(TokenId(2), 100.0)], ..SamplingParams::greedy() };
        let spec = SamplerSpec { logprobs: Some(1), ..spec(params) };
        let mut state = SamplerState::new(&spec, 3);
        let (token, logprobs) = state.sample(&mut [2f32.ln(), 0.0, 0.0], None, &mut SampleScratch::default());
        let logprobs = logprobs.unwrap();
        assert_eq!(token, Ok(TokenId(2)));
        assert!((logprobs.chosen - 0.25f32.ln()).abs() < 1e-6, "{logprobs:?}");
        assert_eq!(logprobs.top[0].token, TokenId(0));
        assert!((logprobs.top[0].logprob - 0.5f32.ln()).abs() < 1e-6, "{logprobs:?}");
    }
}
