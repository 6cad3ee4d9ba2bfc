//! Every strategy in every scenario with every seed, on as many cores as there are: runs share nothing.

use std::collections::BTreeMap;
use std::num::NonZero;
use std::sync::Mutex;
use std::thread;

use crate::clock::lock;
use crate::error::SimulateError;
use crate::preset::Preset;
use crate::progress::Progress;
use crate::run::Run;
use crate::scenario::{Compared, Scenario, StrategyResult};
use crate::summary::Summary;

/// Which scenario, run and seed.
type Place = (usize, usize, usize);

type Outcomes = BTreeMap<Place, Result<Summary, SimulateError>>;

pub(crate) fn compare(preset: &Preset, scenarios: Vec<Scenario>, runs: &[Run]) -> Result<Vec<Compared>, SimulateError> {
    let mut places: Vec<Place> = Vec::new();
    for (at, scenario) in scenarios.iter().enumerate() {
        for run in 0..runs.len() {
            places.extend((0..scenario.workloads.len()).map(|seed| (at, run, seed)));
        }
    }
    let (progress, cores) = (Progress::new(places.len()), thread::available_parallelism().map_or(1, NonZero::get));
    let (waiting, outcomes) = (Mutex::new(places.into_iter()), Mutex::new(Outcomes::new()));
    thread::scope(|scope| {
        for _ in 0..cores {
            scope.spawn(|| {
                loop {
                    let Some((scenario, run, seed)) = lock(&waiting).next() else { return };
                    let outcome = runs[run].simulate(preset, &scenarios[scenario].workloads[seed]);
                    let outcome = outcome.map(|outcome| outcome.summary);
                    let outcome = outcome.map_err(|error| SimulateError::Run { run: runs[run].to_string(), error });
                    lock(&outcomes).insert((scenario, run, seed), outcome);
                    progress.one_more();
                }
            });
        }
    });
    progress.clear();
    let outcomes = std::mem::take(&mut *lock(&outcomes));
    let mut compared: Vec<_> =
        scenarios.into_iter().map(|scenario| Compared { scenario, results: Vec::new() }).collect();
    for ((scenario, run, seed), outcome) in outcomes {
        let (results, summary) = (&mut compared[scenario].results, outcome?);
        if seed == 0 {
            results.push(StrategyResult { run: runs[run].clone(), summary: summary.clone(), by_seed: Vec::new() });
        }
        if let Some(result) = results.last_mut() {
            result.by_seed.push(summary);
        }
    }
    for result in compared.iter_mut().flat_map(|compared| &mut compared.results) {
        result.summary = Summary::mean_of(&result.by_seed);
    }
    Ok(compared)
}
