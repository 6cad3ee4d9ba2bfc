//! All records to the numbers of a report.

use std::collections::BTreeMap;

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use crate::goodput::{Goodput, Slo};
use crate::record::Record;
use crate::run::RunLog;

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Summary {
    pub(crate) window_from_s: f64,
    pub(crate) window_to_s: f64,
    pub(crate) requests: Requests,
    pub(crate) errors: Vec<ErrorCount>,
    /// From the intended send time to the first token.
    pub(crate) ttft_ms: Stats,
    /// Mean time per output token after the first, of each request.
    pub(crate) tpot_ms: Stats,
    /// Between chunks.
    pub(crate) itl_ms: Stats,
    /// From the intended send time to the end of the answer: job completion time.
    pub(crate) e2e_ms: Stats,
    /// How long requests waited for this program.
    pub(crate) client_wait_ms: Stats,
    /// Where the time went, as reported by the server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) server: Option<ServerTimes>,
    pub(crate) throughput: Throughput,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) goodput: Option<Goodput>,
}

/// Of those that count.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Requests {
    pub(crate) measured: u64,
    pub(crate) completed: u64,
    pub(crate) failed: u64,
    /// Answers that ended before the requested length.
    pub(crate) short: u64,
    pub(crate) input_tokens: u64,
    pub(crate) cached_tokens: u64,
    pub(crate) output_tokens: u64,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct ErrorCount {
    pub(crate) kind: String,
    pub(crate) count: u64,
    pub(crate) example: String,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct ServerTimes {
    pub(crate) queue_ms: Stats,
    pub(crate) prefill_ms: Stats,
    pub(crate) handoff_ms: Stats,
    pub(crate) decode_ms: Stats,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Throughput {
    pub(crate) requests_per_s: f64,
    pub(crate) input_tokens_per_s: f64,
    pub(crate) output_tokens_per_s: f64,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Stats {
    pub(crate) count: u64,
    pub(crate) mean: f64,
    pub(crate) min: f64,
    pub(crate) p50: f64,
    pub(crate) p90: f64,
    pub(crate) p95: f64,
    pub(crate) p99: f64,
    pub(crate) max: f64,
    /// Values at `CURVE`'s shares: the distribution to draw.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) curve: Vec<f64>,
}

/// A day.
const MOST_NS: u64 = 86_400_000_000_000;

/// Shares at which a distribution is kept: every percent, and finer at the end.
pub(crate) fn curve_shares() -> impl Iterator<Item = f64> {
    (0..100).map(|percent| f64::from(percent) / 100.0).chain([0.995, 0.999, 1.0])
}

impl Stats {
    /// Percentiles come from a histogram of nanoseconds with three digits; mean, least and most are exact.
    pub(crate) fn of(values_ms: impl IntoIterator<Item = f64>) -> Self {
        // Can only fail for bounds in the wrong order and more digits than five.
        let Ok(mut histogram) = Histogram::<u64>::new_with_bounds(1, MOST_NS, 3) else { return Self::default() };
        let (mut sum, mut min, mut max) = (0.0, f64::INFINITY, 0.0f64);
        for value in values_ms {
            histogram.saturating_record((value * 1e6) as u64);
            sum += value;
            min = min.min(value);
            max = max.max(value);
        }
        if histogram.is_empty() {
            return Self::default();
        }
        let at = |share: f64| (histogram.value_at_quantile(share) as f64 / 1e6).clamp(min, max);
        Self {
            count: histogram.len(),
            mean: sum / histogram.len() as f64,
            min,
            p50: at(0.5),
            p90: at(0.9),
            p95: at(0.95),
            p99: at(0.99),
            max,
            curve: curve_shares().map(at).collect(),
        }
    }
}

impl Summary {
    pub(crate) fn new(log: &RunLog, slo: Option<Slo>) -> Self {
        let measured: Vec<_> = log.records.iter().filter(|record| record.measured).collect();
        let complete: Vec<_> = measured.iter().copied().filter(|record| record.is_complete()).collect();
        let window = Window::of(log, &measured);
        Self {
            window_from_s: window.from_us as f64 / 1e6,
            window_to_s: window.to_us as f64 / 1e6,
            requests: Requests::of(&measured, &complete),
            errors: errors(&measured, &log.examples),
            ttft_ms: Stats::of(complete.iter().filter_map(|record| record.ttft_ms())),
            tpot_ms: Stats::of(complete.iter().filter_map(|record| record.tpot_ms())),
            itl_ms: Stats::of(complete.iter().flat_map(|record| record.gaps_ms())),
            e2e_ms: Stats::of(complete.iter().map(|record| record.e2e_ms())),
            client_wait_ms: Stats::of(measured.iter().filter_map(|record| record.client_wait_ms())),
            server: ServerTimes::of(&complete),
            throughput: window.throughput(&log.records),
            goodput: slo.map(|slo| Goodput::of(slo, &measured, &window)),
        }
    }
}

impl Requests {
    fn of(measured: &[&Record], complete: &[&Record]) -> Self {
        let sum = |tokens: fn(&Record) -> u64| complete.iter().map(|record| tokens(record)).sum();
        Self {
            measured: measured.len() as u64,
            completed: complete.len() as u64,
            failed: (measured.len() - complete.len()) as u64,
            short: complete.iter().filter(|record| record.output_tokens < record.requested_output_tokens).count()
                as u64,
            input_tokens: sum(|record| record.input_tokens),
            cached_tokens: sum(|record| record.cached_tokens),
            output_tokens: sum(|record| record.output_tokens),
        }
    }
}

fn errors(measured: &[&Record], examples: &BTreeMap<String, String>) -> Vec<ErrorCount> {
    let mut counts = BTreeMap::<&str, u64>::new();
    for kind in measured.iter().filter_map(|record| record.error.as_deref()) {
        *counts.entry(kind).or_default() += 1;
    }
    let example = |kind: &str| examples.get(kind).cloned().unwrap_or_default();
    counts.into_iter().map(|(kind, count)| ErrorCount { kind: kind.into(), count, example: example(kind) }).collect()
}

impl ServerTimes {
    fn of(complete: &[&Record]) -> Option<Self> {
        let timings: Vec<_> = complete.iter().filter_map(|record| record.timings).collect();
        if timings.is_empty() {
            return None;
        }
        Some(Self {
            queue_ms: Stats::of(timings.iter().map(|timings| timings.queue_ms)),
            prefill_ms: Stats::of(timings.iter().map(|timings| timings.prefill_ms)),
            handoff_ms: Stats::of(timings.iter().map(|timings| timings.handoff_ms)),
            decode_ms: Stats::of(timings.iter().map(|timings| timings.decode_ms)),
        })
    }
}

/// The time in which throughput is counted. It counts what happens in it, whichever request it belongs to: requests that
/// began in the warm-up or end in the drain take their part of the server's time as well.
pub(crate) struct Window {
    from_us: u64,
    to_us: u64,
}

impl Window {
    fn of(log: &RunLog, measured: &[&Record]) -> Self {
        let last_end = measured.iter().map(|record| record.end_us).max();
        let to_us = log.window_to_us.or(last_end).unwrap_or(0);
        Self { from_us: log.window_from_us.min(to_us), to_us }
    }

    /// The answer that ends it is in it.
    pub(crate) fn has(&self, at_us: u64) -> bool {
        self.from_us <= at_us && at_us <= self.to_us
    }

    pub(crate) fn per_s(&self, count: f64) -> f64 {
        if self.from_us < self.to_us { count * 1e6 / (self.to_us - self.from_us) as f64 } else { 0.0 }
    }

    fn throughput(&self, records: &[Record]) -> Throughput {
        let (mut requests, mut input, mut output) = (0, 0, 0.0);
        for record in records.iter().filter(|record| record.is_complete()) {
            requests += u64::from(self.has(record.end_us));
            input += record.first_token_us.filter(|at| self.has(*at)).map_or(0, |_| record.input_tokens);
            output += record.tokens_per_chunk() * record.chunks_us.iter().filter(|at| self.has(**at)).count() as f64;
        }
        Throughput {
            requests_per_s: self.per_s(requests as f64),
            input_tokens_per_s: self.per_s(input as f64),
            output_tokens_per_s: self.per_s(output),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles() {
        let stats = Stats::of((1..=1000).map(f64::from));
        assert_eq!((stats.count, stats.mean, stats.min, stats.max), (1000, 500.5, 1.0, 1000.0));
        for (found, expected) in [(stats.p50, 500.0), (stats.p90, 900.0), (stats.p99, 990.0)] {
            assert!((found / expected - 1.0).abs() < 2e-3, "{found} for {expected}");
        }
        assert_eq!(stats.curve.len(), curve_shares().count());
        assert_eq!(Stats::of([]), Stats::default());
    }

    fn record(intended_us: u64, chunks_us: &[u64], measured: bool) -> Record {
        Record {
            measured,
            chat: 0,
            turn: 0,
            intended_us,
            sent_us: Some(intended_us),
            first_token_us: chunks_us.first().copied(),
            last_token_us: chunks_us.last().copied(),
            end_us: chunks_us.last().copied().unwrap_or(intended_us),
            input_tokens: 100,
            cached_tokens: 0,
            output_tokens: 2 * chunks_us.len() as u64,
            requested_output_tokens: 2 * chunks_us.len() as u64,
            timings: None,
            error: None,
            chunks_us: chunks_us.to_vec(),
        }
    }

    #[test]
    fn throughput_counts_what_happens_in_the_window() {
        let log = RunLog {
            records: vec![
                // Began in the warm-up, but half of its tokens come in the window.
                record(0, &[500_000, 1_500_000], false),
                record(1_000_000, &[1_200_000, 2_900_000, 3_100_000], true),
            ],
            examples: BTreeMap::new(),
            window_from_us: 1_000_000,
            window_to_us: Some(3_000_000),
        };
        let summary = Summary::new(&log, None);
        assert_eq!(summary.requests.measured, 1);
        assert_eq!(
            summary.throughput,
            Throughput { requests_per_s: 0.5, input_tokens_per_s: 50.0, output_tokens_per_s: 3.0 }
        );
        assert_eq!((summary.ttft_ms.p50, summary.e2e_ms.max), (200.0, 2100.0));
        assert_eq!(summary.itl_ms.count, 2);
    }

    #[test]
    fn failures_are_counted_by_kind_and_not_timed() {
        let failed = Record { error: Some("HTTP 429".into()), ..record(0, &[], true) };
        let log = RunLog {
            records: vec![failed.clone(), failed, record(0, &[10_000], true)],
            examples: [("HTTP 429".to_owned(), "HTTP 429: slow down".to_owned())].into(),
            ..RunLog::default()
        };
        let summary = Summary::new(&log, None);
        assert_eq!((summary.requests.completed, summary.requests.failed), (1, 2));
        assert_eq!(
            summary.errors,
            [ErrorCount { kind: "HTTP 429".into(), count: 2, example: "HTTP 429: slow down".into() }]
        );
        assert_eq!(summary.ttft_ms.count, 1);
    }
}
