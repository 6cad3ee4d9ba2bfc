//! The comparison as JSON.

use std::path::Path;

use serde::Serialize;

use super::Comparison;
use crate::error::SimulateError;
use crate::summary::Summary;

#[derive(Serialize)]
struct ComparisonFile<'a> {
    format: &'static str,
    preset: &'a str,
    engines: usize,
    seeds: &'a [u64],
    scenarios: Vec<ScenarioFile<'a>>,
}

#[derive(Serialize)]
struct ScenarioFile<'a> {
    workload: &'a str,
    requests_per_s: f64,
    left_out: usize,
    runs: Vec<RunFile<'a>>,
}

#[derive(Serialize)]
struct RunFile<'a> {
    strategy: &'a str,
    parameters: &'a baton_router::Parameters,
    prefill_engines: usize,
    decode_engines: usize,
    mixed_engines: usize,
    summary: &'a Summary,
    by_seed: &'a [Summary],
}

pub(crate) fn save(path: &Path, comparison: &Comparison) -> Result<(), SimulateError> {
    let scenarios = comparison.scenarios.iter().map(|compared| ScenarioFile {
        workload: &compared.scenario.name,
        requests_per_s: compared.scenario.rate,
        left_out: compared.scenario.left_out(),
        runs: compared
            .results
            .iter()
            .map(|result| RunFile {
                strategy: &result.run.strategy,
                parameters: &result.run.parameters,
                prefill_engines: result.run.layout.prefill,
                decode_engines: result.run.layout.decode,
                mixed_engines: result.run.layout.mixed,
                summary: &result.summary,
                by_seed: &result.by_seed,
            })
            .collect(),
    });
    let file = ComparisonFile {
        format: "baton-simulate/1",
        preset: comparison.preset.name,
        engines: comparison.engines,
        seeds: &comparison.seeds,
        scenarios: scenarios.collect(),
    };
    let json = serde_json::to_vec_pretty(&file).map_err(|error| SimulateError::file(path, error))?;
    std::fs::write(path, json).map_err(|error| SimulateError::file(path, error))
}
