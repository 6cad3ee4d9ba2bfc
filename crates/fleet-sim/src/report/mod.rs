//! A comparison of strategies: as a table, as a file, as a page.

mod bars;
mod colour;
pub(crate) mod file;
mod measure;
pub(crate) mod page;
mod rates;
pub(crate) mod table;

use baton_bench::page::{digits, grouped};

use crate::preset::{Preset, Slo};
use crate::run::Run;
use crate::scenario::{Compared, StrategyResult};
use crate::summary::Summary;

pub(crate) struct Comparison {
    pub(crate) preset: &'static Preset,
    pub(crate) engines: usize,
    pub(crate) seeds: Vec<u64>,
    pub(crate) scenarios: Vec<Compared>,
}

/// A strategy that adapts, beside the best of those that do not.
struct Against<'a> {
    adapting: &'a Run,
    jct: [Ratio<'a>; 2],
}

struct Ratio<'a> {
    statistic: &'static str,
    /// Below 1: the one that adapts is better.
    ratio: f64,
    /// The best of those that do not adapt.
    to: &'a Run,
}

impl Comparison {
    /// What all of it has in common, in words.
    fn heading(&self) -> String {
        let Slo { ttft_ms, tpot_ms } = self.preset.slo;
        let seeds: Vec<_> = self.seeds.iter().map(u64::to_string).collect();
        format!(
            "{} × {} ({}), seed {}; goodput: TTFT ≤ {ttft_ms} ms and TPOT ≤ {tpot_ms} ms",
            self.engines,
            self.preset.name,
            self.preset.about,
            seeds.join(", ")
        )
    }
}

impl Compared {
    /// `mixed: 9.3 requests/s, 1,000 requests`.
    fn heading(&self) -> String {
        let requests = self.results.first().map_or(0, |result| result.by_seed.first().map_or(0, |run| run.requests));
        let rate = digits(self.scenario.rate);
        let left_out = match self.scenario.left_out() {
            0 => String::new(),
            left_out => format!(", {left_out} left out that are too long"),
        };
        format!("{}: {rate} requests/s, {} requests{left_out}", self.scenario.name, grouped(requests as f64))
    }

    fn against_best_fixed(&self) -> Vec<Against<'_>> {
        let adapting = self.results.iter().filter(|result| result.run.adapts());
        let against = adapting.filter_map(|result| {
            let mean = self.ratio(result, "mean", |summary| summary.jct_ms.mean)?;
            let p99 = self.ratio(result, "P99", |summary| summary.jct_ms.p99)?;
            Some(Against { adapting: &result.run, jct: [mean, p99] })
        });
        against.collect()
    }

    fn ratio(&self, adapting: &StrategyResult, statistic: &'static str, of: fn(&Summary) -> f64) -> Option<Ratio<'_>> {
        let fixed = self.results.iter().filter(|result| !result.run.adapts());
        let best = fixed.min_by(|a, b| of(&a.summary).total_cmp(&of(&b.summary)))?;
        Some(Ratio { statistic, ratio: of(&adapting.summary) / of(&best.summary), to: &best.run })
    }
}
