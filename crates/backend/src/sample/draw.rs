//! One token out of a distribution: filters, then the inverse of the cumulative distribution, best token first.

use baton_core::{SamplingParams, TokenId};

use super::SampleScratch;
use super::ranking::Ranking;
use super::softmax::{total_weight, weight};

/// In units of the temperature: what lies further below the best logit is rarely looked at.
const LIKELY: f32 = 12.0;

/// `max` is the largest logit and finite; the temperature is positive; `uniform` lies in [0, 1).
pub(super) fn draw(
    logits: &[f32],
    max: f32,
    params: &SamplingParams,
    uniform: f64,
    scratch: &mut SampleScratch,
) -> TokenId {
    let temperature = params.temperature;
    // As many as can be wanted: a draw from a flatter distribution allocates nothing either.
    scratch.cumulative.clear();
    scratch.cumulative.reserve(logits.len());
    scratch.ranked.clear();
    scratch.ranked.reserve(logits.len());
    let mut kept = Kept {
        ranking: Ranking::new(logits, max - LIKELY * temperature, &mut scratch.ranked),
        cumulative: &mut scratch.cumulative,
        max,
        temperature,
        least: params.min_p,
        count: params.top_k.map_or(usize::MAX, |count| count as usize),
    };
    let mut total = if params.min_p > 0.0 || params.top_k.is_some() {
        let last = kept.rank_where(|_| false);
        kept.cumulative[last]
    } else {
        total_weight(logits, max, temperature)
    };
    if params.top_p < 1.0 {
        let mass = f64::from(params.top_p) * total;
        let last = kept.rank_where(|sum| sum >= mass);
        kept.end_after(last);
        total = kept.cumulative[last];
    }
    let target = uniform * total;
    let rank = kept.rank_where(|sum| sum > target);
    kept.token(rank)
}

/// The tokens that pass the filters, best first, with the sums of their weights as far as they were needed.
struct Kept<'a> {
    ranking: Ranking<'a>,
    /// `cumulative[i]`: the weight of ranks 0 … i.
    cumulative: &'a mut Vec<f64>,
    max: f32,
    temperature: f32,
    /// The best token has weight 1, so this is relative to it.
    least: f32,
    count: usize,
}

impl Kept<'_> {
    /// The first rank whose cumulative weight is `enough`; the last rank if none is. `enough` holds for all ranks after
    /// the first for which it does.
    fn rank_where(&mut self, enough: impl Fn(f64) -> bool) -> usize {
        while !self.cumulative.last().is_some_and(|sum| enough(*sum)) && self.add_next() {}
        self.cumulative.partition_point(|sum| !enough(*sum)).min(self.cumulative.len() - 1)
    }

    /// False when no token is left. The best one is kept by every filter, so there is always one.
    fn add_next(&mut self) -> bool {
        let rank = self.cumulative.len();
        let Some(next) = self.ranking.get(rank) else { return false };
        let weight = weight(next.logit, self.max, self.temperature);
        if rank > 0 && (rank >= self.count || weight < self.least || weight == 0.0) {
            return false;
        }
        self.cumulative.push(self.cumulative.last().unwrap_or(&0.0) + f64::from(weight));
        true
    }

    fn end_after(&mut self, rank: usize) {
        self.count = rank + 1;
        self.cumulative.truncate(self.count);
    }

    fn token(&mut self, rank: usize) -> TokenId {
        self.ranking.get(rank).map_or(TokenId(0), |ranked| ranked.token)
    }
}

#[cfg(test)]
mod tests {
    use super::super::random::uniform;
    use super::*;
    use baton_core::Choice;

    fn all() -> SamplingParams {
        SamplingParams { temperature: 1.0, ..SamplingParams::greedy() }
    }

    /// Logits of given probabilities.
    fn logits(probabilities: &[f32]) -> Vec<f32> {
        probabilities.iter().map(|probability| probability.ln()).collect()
    }

    fn drawn(logits: &[f32], params: &SamplingParams, uniform: f64) -> u32 {
        let max = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        draw(logits, max, params, uniform, &mut SampleScratch::default()).0
    }

    #[test]
    fn the_best_token_comes_first_whatever_its_id() {
        // Sorted: token 2 up to 0.5, token 0 up to 0.8, tokens 1 and 3 (a tie) up to 0.9 and 1.
        let logits = logits(&[0.3, 0.1, 0.5, 0.1]);
        let table =
            [(0.0, 2), (0.49, 2), (0.51, 0), (0.79, 0), (0.81, 1), (0.89, 1), (0.91, 3), (1.0 - f64::EPSILON, 3)];
        for (uniform, token) in table {
            assert_eq!(drawn(&logits, &all(), uniform), token, "{uniform}");
        }
    }

    #[test]
    fn filters_by_table() {
        let logits = logits(&[0.3, 0.1, 0.5, 0.1]);
        let last = 1.0 - f64::EPSILON;
        // The last token of what is kept: 2, then 0, then 1, then 3.
        let table = [
            (SamplingParams { top_k: Some(1), ..all() }, 2),
            (SamplingParams { top_k: Some(2), ..all() }, 0),
            (SamplingParams { top_k: Some(3), ..all() }, 1),
            (SamplingParams { top_k: Some(99), ..all() }, 3),
            (SamplingParams { top_k: Some(0), ..all() }, 2),
            (SamplingParams { top_p: 0.0, ..all() }, 2),
            (SamplingParams { top_p: 0.49, ..all() }, 2),
            (SamplingParams { top_p: 0.51, ..all() }, 0),
            (SamplingParams { top_p: 0.81, ..all() }, 1),
            (SamplingParams { top_p: 0.99, ..all() }, 3),
            (SamplingParams { min_p: 0.1, ..all() }, 3),
            (SamplingParams { min_p: 0.3, ..all() }, 0),
            (SamplingParams { min_p: 0.7, ..all() }, 2),
            (SamplingParams { min_p: 1.0, ..all() }, 2),
            // top_p looks at what top_k left: 0.5 of 0.8 is 0.625.
            (SamplingParams { top_k: Some(2), top_p: 0.62, ..all() }, 2),
            (SamplingParams { top_k: Some(2), top_p: 0.63, ..all() }, 0),
            // min_p looks at what temperature left: 0.3 / 0.5 becomes its square.
            (SamplingParams { temperature: 0.5, min_p: 0.35, ..all() }, 0),
            (SamplingParams { temperature: 0.5, min_p: 0.37, ..all() }, 2),
            (SamplingParams { temperature: 1e-30, ..all() }, 2),
            (SamplingParams { temperature: f32::from_bits(1), ..all() }, 2),
        ];
        for (params, token) in table {
            assert_eq!(drawn(&logits, &params, last), token, "{params:?}");
        }
    }

    /// Sorting lazily, in bands and only as far as needed must not show.
    #[test]
    fn the_result_is_that_of_a_full_sort() {
        for case in 0..3000 {
            let random = |salt: u32| uniform(case, Choice(salt), 0);
            let spread = [0.1, 3.0, 40.0][case as usize % 3];
            let logits: Vec<f32> = (0..700).map(|token| (spread * uniform(case, Choice(9), token)) as f32).collect();
            let params = SamplingParams {
                temperature: 0.1 + random(0) as f32 * 2.0,
                top_p: [1.0, random(1) as f32][case as usize / 3 % 2],
                top_k: [None, Some(1 + (random(2) * 700.0) as u32)][case as usize / 6 % 2],
                min_p: [0.0, random(3) as f32 * 0.3][case as usize / 12 % 2],
                ..all()
            };
            assert_eq!(drawn(&logits, &params, random(4)), by_full_sort(&logits, &params, random(4)), "{params:?}");
        }
    }

    fn by_full_sort(logits: &[f32], params: &SamplingParams, uniform: f64) -> u32 {
        let mut order: Vec<usize> = (0..logits.len()).collect();
        order.sort_by(|a, b| logits[*b].total_cmp(&logits[*a]).then(a.cmp(b)));
        let max = logits[order[0]];
        let mut ranked: Vec<(usize, f64)> =
            order.into_iter().map(|token| (token, weight(logits[token], max, params.temperature).into())).collect();
        ranked.retain(|(_, weight)| *weight >= f64::from(params.min_p));
        ranked.truncate(params.top_k.map_or(usize::MAX, |count| count as usize));
        let total: f64 = ranked.iter().map(|(_, weight)| weight).sum();
        let mut sum = 0.0;
        let nucleus = ranked.iter().take_while(|(_, weight)| {
            let before = sum;
            sum += weight;
            params.top_p >= 1.0 || before < f64::from(params.top_p) * total
        });
        let nucleus: Vec<_> = nucleus.collect();
        let target = uniform * nucleus.iter().map(|(_, weight)| weight).sum::<f64>();
        let mut sum = 0.0;
        let chosen = nucleus.iter().find(|(_, weight)| {
            sum += weight;
            sum > target
        });
        chosen.unwrap_or(&nucleus[nucleus.len() - 1]).0 as u32
    }

    /// Chi-square over 100,000 seeded draws from 150 tokens: fails if the distribution is another.
    #[test]
    fn draws_follow_the_distribution() {
        const DRAWS: usize = 100_000;
        let logits: Vec<f32> = (0..150).map(|token| ((token * 37) % 50) as f32 * 0.1).collect();
        for (temperature, top_k) in [(1.0, None), (0.7, None), (2.0, Some(40))] {
            let params = SamplingParams { temperature, top_k, ..all() };
            let mut counts = vec![0; logits.len()];
            for position in 0..DRAWS {
                counts[drawn(&logits, &params, uniform(11, Choice(0), position as u64)) as usize] += 1;
            }
            let weights = expected_weights(&logits, &params);
            let total: f64 = weights.iter().sum();
            let mut chi_square = 0.0;
            for (count, weight) in counts.iter().zip(&weights) {
                let expected = weight / total * DRAWS as f64;
                match expected {
                    0.0 => assert_eq!(*count, 0),
                    _ => chi_square += (f64::from(*count) - expected).powi(2) / expected,
                }
            }
            let freedom = weights.iter().filter(|weight| **weight > 0.0).count() as f64 - 1.0;
            // Four standard deviations.
            assert!(chi_square < freedom + 4.0 * (2.0 * freedom).sqrt(), "{params:?}: {chi_square} of {freedom}");
        }
    }

    fn expected_weights(logits: &[f32], params: &SamplingParams) -> Vec<f64> {
        let mut order: Vec<usize> = (0..logits.len()).collect();
        order.sort_by(|a, b| logits[*b].total_cmp(&logits[*a]).then(a.cmp(b)));
        let mut weights = vec![0.0; logits.len()];
        for token in order.into_iter().take(params.top_k.map_or(usize::MAX, |count| count as usize)) {
            weights[token] = (f64::from(logits[token]) / f64::from(params.temperature)).exp();
        }
        weights
    }
}
