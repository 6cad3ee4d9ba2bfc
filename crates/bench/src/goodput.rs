//! Goodput: the rate at which enough requests are served well enough, and the search for it.

use serde::{Deserialize, Serialize};

use crate::record::Record;
use crate::summary::Window;

/// What a request must meet to count.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Slo {
    pub(crate) ttft_ms: Option<f64>,
    pub(crate) tpot_ms: Option<f64>,
    /// Of all requests, that must meet both.
    pub(crate) share: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Goodput {
    pub(crate) slo: Slo,
    /// Of the measured requests; a failed one meets nothing.
    pub(crate) share_met: f64,
    /// Requests that meet it and end in the measured time, per second.
    pub(crate) requests_per_s: f64,
}

impl Slo {
    pub(crate) fn is_met_by(&self, record: &Record) -> bool {
        let within = |value: Option<f64>, limit: Option<f64>| match (value, limit) {
            (Some(value), Some(limit)) => value <= limit,
            // An answer of one token has no time per token.
            _ => true,
        };
        record.is_complete()
            && record.first_token_us.is_some()
            && within(record.ttft_ms(), self.ttft_ms)
            && within(record.tpot_ms(), self.tpot_ms)
    }
}

impl Goodput {
    pub(crate) fn of(slo: Slo, measured: &[&Record], window: &Window) -> Self {
        let met: Vec<_> = measured.iter().filter(|record| slo.is_met_by(record)).collect();
        let in_time = met.iter().filter(|record| window.has(record.end_us)).count();
        Self {
            slo,
            share_met: met.len() as f64 / measured.len().max(1) as f64,
            requests_per_s: window.per_s(in_time as f64),
        }
    }

    pub(crate) fn is_enough(&self) -> bool {
        self.share_met >= self.slo.share
    }
}

/// The highest rate that is good enough, to within a share of itself: doubled until it fails, then halved in between.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Search {
    good: Option<f64>,
    bad: Option<f64>,
    next: f64,
    trials_left: u32,
}

/// Goodput is found to within this.
const PRECISION: f64 = 0.05;
/// Rates from 2⁻¹⁰ to 2¹⁰ of the first guess can be found, with 5 more trials for the precision.
const MOST_TRIALS: u32 = 15;

impl Search {
    pub(crate) fn from(first_rate: f64) -> Self {
        Self { good: None, bad: None, next: first_rate, trials_left: MOST_TRIALS }
    }

    /// The next rate to try, while there is something to find out.
    pub(crate) fn next_rate(&self) -> Option<f64> {
        let narrow = matches!((self.good, self.bad), (Some(good), Some(bad)) if bad - good <= PRECISION * good);
        (self.trials_left > 0 && !narrow).then_some(self.next)
    }

    pub(crate) fn record(&mut self, was_good: bool) {
        if was_good {
            self.good = Some(self.next)
        } else {
            self.bad = Some(self.next)
        }
        self.trials_left -= 1;
        self.next = match (self.good, self.bad) {
            (Some(good), Some(bad)) => (good + bad) / 2.0,
            (Some(good), None) => good * 2.0,
            (None, _) => self.next / 2.0,
        };
    }

    /// `None`: no rate that was tried is low enough.
    pub(crate) fn found(&self) -> Option<f64> {
        self.good
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_edge() {
        for (first, edge) in [(1.0, 37.0), (100.0, 3.0), (8.0, 8.0), (1.0, 1.2)] {
            let mut search = Search::from(first);
            let mut trials = 0;
            while let Some(rate) = search.next_rate() {
                search.record(rate <= edge);
                trials += 1;
            }
            let found = search.found().unwrap();
            assert!(found <= edge && found >= edge * 0.94, "{found} for {edge} in {trials} trials");
        }
    }

    #[test]
    fn gives_up_where_nothing_is_good() {
        let mut search = Search::from(1.0);
        while search.next_rate().is_some() {
            search.record(false);
        }
        assert_eq!(search.found(), None);
    }
}
