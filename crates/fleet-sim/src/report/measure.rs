//! What strategies are compared by.

use baton_bench::page::digits;

use crate::scenario::StrategyResult;
use crate::summary::{Stats, Summary};

pub(crate) struct Measure {
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
    pub(crate) unit: &'static str,
    pub(crate) value: Value,
}

#[derive(Clone, Copy)]
pub(crate) enum Value {
    /// Shorter is better.
    Latency(fn(&Summary) -> Stats),
    /// More is better.
    Amount(fn(&Summary) -> f64),
}

pub(crate) static MEASURES: [Measure; 4] = [
    Measure {
        name: "TTFT",
        about: "Time to first token",
        unit: "ms",
        value: Value::Latency(|summary| summary.ttft_ms),
    },
    Measure { name: "ITL", about: "Time between tokens", unit: "ms", value: Value::Latency(|summary| summary.itl_ms) },
    Measure { name: "JCT", about: "Job completion time", unit: "ms", value: Value::Latency(|summary| summary.jct_ms) },
    Measure {
        name: "goodput",
        about: "Goodput",
        unit: "requests/s",
        value: Value::Amount(|summary| summary.goodput_per_s),
    },
];

/// One figure of each result; for latencies there are two.
pub(crate) struct Column {
    /// Its second line, where it has one.
    pub(crate) statistic: &'static str,
    pub(crate) values: Vec<f64>,
    best: f64,
}

impl Column {
    fn new(statistic: &'static str, values: Vec<f64>, shorter_is_better: bool) -> Self {
        let best = if shorter_is_better { f64::min } else { f64::max };
        let best = values.iter().copied().reduce(best).unwrap_or_default();
        Self { statistic, values, best }
    }

    /// Also when it only looks as good.
    pub(crate) fn is_best(&self, at: usize) -> bool {
        self.values.get(at).is_some_and(|value| digits(*value) == digits(self.best))
    }
}

impl Measure {
    pub(crate) fn columns(&self, results: &[StrategyResult]) -> Vec<Column> {
        let summaries = || results.iter().map(|result| &result.summary);
        match self.value {
            Value::Latency(of) => vec![
                Column::new("mean", summaries().map(|summary| of(summary).mean).collect(), true),
                Column::new("P99", summaries().map(|summary| of(summary).p99).collect(), true),
            ],
            Value::Amount(of) => vec![Column::new("", summaries().map(of).collect(), false)],
        }
    }
}

/// `12 %`, and nothing for a strategy that does not predict.
pub(crate) fn prediction(summary: &Summary) -> String {
    summary.ttft_error.map_or_else(String::new, |error| format!("{:.0} %", error * 100.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_reads_the_same_is_as_good() {
        for (values, shorter_is_better, expected) in [
            ([3.0, 1.0, 2.0], true, [false, true, false]),
            ([3.0, 1.0, 2.0], false, [true, false, false]),
            ([1234.4, 1234.1, 1235.0], true, [true, true, false]),
        ] {
            let column = Column::new("", values.to_vec(), shorter_is_better);
            assert_eq!([0, 1, 2].map(|at| column.is_best(at)), expected, "{values:?}");
        }
    }
}
