//! `baton simulate`: strategies under workloads, as a table, a file and a page.

use baton_router::STRATEGIES;

use crate::choice::Choice;
use crate::compare::compare;
use crate::error::SimulateError;
use crate::options::SimulateOptions;
use crate::report::{Comparison, file, page, table};
use crate::run::Run;
use crate::scenario::{Scenario, engines};

/// Prints the comparison to standard output, and saves it where that is requested.
pub fn simulate(options: &SimulateOptions) -> Result<(), SimulateError> {
    let engines = engines(options);
    if options.layout.iter().any(|layout| layout.engines() != engines) {
        return Err(SimulateError::Usage("layouts must have the same number of engines".to_owned()));
    }
    let comparison = Comparison {
        preset: options.preset,
        engines,
        seeds: options.seed.clone(),
        scenarios: compare(options.preset, Scenario::all(options)?, &runs(options, engines)?)?,
    };
    print!("{}", table::text(&comparison));
    if let Some(path) = &options.json {
        file::save(path, &comparison)?;
    }
    if let Some(path) = &options.html {
        page::save(path, &comparison)?;
    }
    Ok(())
}

fn runs(options: &SimulateOptions, engines: usize) -> Result<Vec<Run>, SimulateError> {
    let all = || STRATEGIES.iter().map(|kind| kind.name.parse()).collect::<Result<Vec<Choice>, _>>();
    let chosen =
        if options.strategy.is_empty() { all().map_err(SimulateError::Usage)? } else { options.strategy.clone() };
    let runs: Vec<_> = chosen.iter().flat_map(|choice| choice.runs(&options.layout, engines)).collect();
    if runs.is_empty() {
        return Err(SimulateError::Usage("these strategies need at least two engines".to_owned()));
    }
    Ok(runs)
}
