//! Log-probabilities of the model's own distribution.

use baton_core::{Candidate, TokenId, TokenLogprobs};

use super::SampleScratch;
use super::ranking::Ranking;
use super::softmax::{finite_max, total_weight};

/// Below the best logit by more than this lie rarely any of the few best tokens.
const LIKELY: f32 = 8.0;

/// Of `token` and of the `top` most likely ones, ties by id. NaN, and no candidates, where the logits are no distribution.
pub fn token_logprobs(logits: &[f32], token: TokenId, top: u32, scratch: &mut SampleScratch) -> TokenLogprobs {
    let (Ok(max), Some(chosen)) = (finite_max(logits), logits.get(token.index())) else {
        return TokenLogprobs { chosen: f32::NAN, top: Vec::new() };
    };
    let log_total = total_weight(logits, max, 1.0).ln();
    let logprob = |logit: f32| (f64::from(logit) - f64::from(max) - log_total) as f32;
    let mut candidates = Vec::with_capacity((top as usize).min(logits.len()));
    if top > 0 {
        let mut ranking = Ranking::new(logits, max - LIKELY, &mut scratch.ranked);
        let best = (0..top as usize).map_while(|rank| ranking.get(rank));
        candidates.extend(best.map(|ranked| Candidate { token: ranked.token, logprob: logprob(ranked.logit) }));
    }
    TokenLogprobs { chosen: logprob(*chosen), top: candidates }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logprobs_by_table() {
        // Probabilities 1/8, 1/2, 1/4, 1/8, shifted by a constant that must not matter.
        let logits = [1.0f32, 4.0, 2.0, 1.0].map(|weight| weight.ln() + 50.0);
        let best = [(1, 0.5f32), (2, 0.25), (0, 0.125), (3, 0.125)];
        let table = [(1, 0, 0.5f32, 0), (0, 1, 0.125, 1), (3, 3, 0.125, 3), (2, 9, 0.25, 4)];
        for (token, top, chosen, count) in table {
            let logprobs = token_logprobs(&logits, TokenId(token), top, &mut SampleScratch::default());
            assert!((logprobs.chosen - chosen.ln()).abs() < 1e-5, "{token}: {logprobs:?}");
            assert_eq!(logprobs.top.len(), count);
            for (candidate, (token, probability)) in logprobs.top.iter().zip(best) {
                assert_eq!(candidate.token, TokenId(token), "{logprobs:?}");
                assert!((candidate.logprob - probability.ln()).abs() < 1e-5, "{logprobs:?}");
            }
        }
    }

    #[test]
    fn no_distribution_no_logprobs() {
        let logprobs = token_logprobs(&[1.0, f32::NAN], TokenId(0), 2, &mut SampleScratch::default());
        assert!(logprobs.chosen.is_nan() && logprobs.top.is_empty());
        let mut scratch = SampleScratch::default();
        assert!(token_logprobs(&[1.0], TokenId(1), 0, &mut scratch).chosen.is_nan());
        assert_eq!(token_logprobs(&[0.0, f32::NEG_INFINITY], TokenId(1), 0, &mut scratch).chosen, f32::NEG_INFINITY);
    }
}
