//! A run in numbers.

use serde::Serialize;

use crate::preset::Slo;
use crate::record::{Record, Records, millis};

#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Stats {
    pub mean: f64,
    pub p50: f64,
    pub p99: f64,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Summary {
    pub requests: usize,
    pub failed: usize,
    /// To the first token.
    pub ttft_ms: Stats,
    /// Per token after the first, one value per request.
    pub tpot_ms: Stats,
    /// Between consecutive tokens, one value per pair.
    pub itl_ms: Stats,
    /// To the last token.
    pub jct_ms: Stats,
    /// Median over requests: by what share of the real time to the first token the predicted one was off. `None`: the
    /// strategy does not predict.
    pub ttft_error: Option<f64>,
    pub requests_per_s: f64,
    pub output_tokens_per_s: f64,
    /// Of all requests, those that met both objectives.
    pub slo_share: f64,
    /// Those per second.
    pub goodput_per_s: f64,
    /// Of all prompt tokens, those that came from a prefix cache.
    pub cached_share: f64,
    pub preemptions: u64,
}

impl Summary {
    pub(crate) fn of(records: &Records, slo: Slo, preemptions: u64) -> Self {
        let requests = &records.requests;
        let began = requests.iter().map(|record| record.arrival).min().unwrap_or_default();
        let ended = requests.iter().map(|record| record.end).max().unwrap_or_default();
        let lasted_s = ended.saturating_sub(began).as_secs_f64().max(1e-9);
        let served = requests.iter().filter(|record| record.error.is_none()).count();
        let good = requests.iter().filter(|record| meets(record, slo)).count();
        let sum =
            |count: fn(&Record) -> u32| requests.iter().map(|record| u64::from(count(record))).sum::<u64>() as f64;
        Self {
            requests: requests.len(),
            failed: requests.len() - served,
            ttft_ms: Stats::of(requests.iter().filter_map(Record::ttft_ms)),
            tpot_ms: Stats::of(requests.iter().filter_map(Record::tpot_ms)),
            itl_ms: Stats::of(records.gaps.iter().copied().map(millis)),
            jct_ms: Stats::of(requests.iter().filter_map(Record::jct_ms)),
            ttft_error: median(requests.iter().filter_map(Record::ttft_error)),
            requests_per_s: served as f64 / lasted_s,
            output_tokens_per_s: sum(|record| record.output_tokens) / lasted_s,
            slo_share: good as f64 / requests.len().max(1) as f64,
            goodput_per_s: good as f64 / lasted_s,
            cached_share: sum(|record| record.cached_tokens) / sum(|record| record.input_tokens).max(1.0),
            preemptions,
        }
    }

    /// Of runs with different seeds: each figure's mean, and the sums of what is counted.
    pub fn mean_of(runs: &[Self]) -> Self {
        let errors: Option<Vec<_>> = runs.iter().map(|run| run.ttft_error).collect();
        let stats = |of: fn(&Self) -> Stats| Stats::mean_of(runs, of);
        Self {
            requests: runs.iter().map(|run| run.requests).sum(),
            failed: runs.iter().map(|run| run.failed).sum(),
            ttft_ms: stats(|run| run.ttft_ms),
            tpot_ms: stats(|run| run.tpot_ms),
            itl_ms: stats(|run| run.itl_ms),
            jct_ms: stats(|run| run.jct_ms),
            ttft_error: errors.filter(|all| !all.is_empty()).map(|all| all.iter().sum::<f64>() / all.len() as f64),
            requests_per_s: mean(runs, |run| run.requests_per_s),
            output_tokens_per_s: mean(runs, |run| run.output_tokens_per_s),
            slo_share: mean(runs, |run| run.slo_share),
            goodput_per_s: mean(runs, |run| run.goodput_per_s),
            cached_share: mean(runs, |run| run.cached_share),
            preemptions: runs.iter().map(|run| run.preemptions).sum(),
        }
    }
}

fn mean(runs: &[Summary], of: impl Fn(&Summary) -> f64) -> f64 {
    runs.iter().map(of).sum::<f64>() / runs.len().max(1) as f64
}

fn median(values: impl Iterator<Item = f64>) -> Option<f64> {
    let mut values = values.peekable();
    values.peek()?;
    Some(Stats::of(values).p50)
}

/// A request of one token has no time per further token.
fn meets(record: &Record, slo: Slo) -> bool {
    let in_time = record.ttft_ms().is_some_and(|ttft| ttft <= slo.ttft_ms);
    record.error.is_none() && in_time && record.tpot_ms().is_none_or(|tpot| tpot <= slo.tpot_ms)
}

impl Stats {
    fn mean_of(all: &[Summary], of: fn(&Summary) -> Self) -> Self {
        let mean = |value: fn(Self) -> f64| mean(all, |summary| value(of(summary)));
        Self { mean: mean(|stats| stats.mean), p50: mean(|stats| stats.p50), p99: mean(|stats| stats.p99) }
    }

    /// Percentiles are values that occurred: the smallest with that share of all at or below it.
    pub(crate) fn of(values: impl Iterator<Item = f64>) -> Self {
        let mut values: Vec<_> = values.collect();
        values.sort_by(f64::total_cmp);
        let Some(last) = values.len().checked_sub(1) else { return Self::default() };
        let at = |share: f64| values[((values.len() as f64 * share).ceil() as usize).saturating_sub(1).min(last)];
        Self { mean: values.iter().sum::<f64>() / values.len() as f64, p50: at(0.5), p99: at(0.99) }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn percentiles_are_values_that_occurred() {
        let hundred = Stats::of((1..=100).rev().map(f64::from));
        assert_eq!(hundred, Stats { mean: 50.5, p50: 50.0, p99: 99.0 });
        assert_eq!(Stats::of([7.0].into_iter()), Stats { mean: 7.0, p50: 7.0, p99: 7.0 });
        assert_eq!(Stats::of(std::iter::empty()), Stats::default());
    }

    #[test]
    fn a_request_counts_as_goodput_when_it_meets_both_objectives() {
        let slo = Slo { ttft_ms: 100.0, tpot_ms: 10.0 };
        let ms = Duration::from_millis;
        // First token, last token, tokens, whether it failed → good
        let cases = [
            (100, 190, 10, false, true),
            (101, 150, 10, false, false),
            (50, 141, 10, false, false),
            (50, 50, 1, false, true),
            (50, 100, 10, true, false),
        ];
        for (first, last, output_tokens, failed, good) in cases {
            let record = Record {
                first_token: Some(ms(first)),
                last_token: ms(last),
                end: ms(last),
                output_tokens,
                error: failed.then(|| "failed".to_owned()),
                ..Record::default()
            };
            assert_eq!(meets(&record, slo), good, "{first} {last} {output_tokens}");
        }
    }

    #[test]
    fn figures_of_seeds_are_averaged_and_counts_added() {
        let ms = Duration::from_millis;
        let of = |ttft: u64, predicted: Option<u64>| {
            let (first_token, predicted_first_token) = (Some(ms(ttft)), predicted.map(ms));
            let record = Record { first_token, predicted_first_token, end: ms(ttft), ..Record::default() };
            let records = Records { requests: vec![record], gaps: Vec::new() };
            Summary::of(&records, Slo { ttft_ms: 100.0, tpot_ms: 10.0 }, 1)
        };
        let both = Summary::mean_of(&[of(100, Some(150)), of(300, Some(300))]);
        assert_eq!((both.requests, both.preemptions, both.ttft_ms.mean, both.slo_share), (2, 2, 200.0, 0.5));
        assert_eq!(both.ttft_error, Some(0.25), "half of the real time, and nothing");
        assert_eq!(Summary::mean_of(&[of(100, None), of(300, None)]).ttft_error, None);
    }
}
