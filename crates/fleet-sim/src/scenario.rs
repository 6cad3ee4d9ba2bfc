//! What strategies are compared under: a workload at one rate, on engines of one kind.

use std::path::Path;

use baton_bench::workload::{Trace, TraceScale};

use crate::error::SimulateError;
use crate::options::SimulateOptions;
use crate::run::Run;
use crate::summary::Summary;
use crate::workload::{Workload, WorkloadKind};

pub(crate) struct Scenario {
    pub(crate) name: String,
    pub(crate) rate: f64,
    /// With each seed.
    pub(crate) workloads: Vec<Workload>,
}

/// One strategy in a scenario.
pub(crate) struct StrategyResult {
    pub(crate) run: Run,
    /// The mean of those with each seed.
    pub(crate) summary: Summary,
    pub(crate) by_seed: Vec<Summary>,
}

pub(crate) struct Compared {
    pub(crate) scenario: Scenario,
    pub(crate) results: Vec<StrategyResult>,
}

impl Scenario {
    pub(crate) fn all(options: &SimulateOptions) -> Result<Vec<Self>, SimulateError> {
        let engines = engines(options);
        let kinds = match (&options.workload[..], &options.trace) {
            ([], None) => vec![WorkloadKind::ShortChat, WorkloadKind::LongPrompts, WorkloadKind::Mixed],
            (kinds, _) => kinds.to_vec(),
        };
        let mut scenarios = Vec::new();
        for kind in kinds {
            let usual = || vec![Workload::default_rate(kind, options.preset, engines)];
            let rates = if options.rate.is_empty() { usual() } else { options.rate.clone() };
            scenarios.extend(rates.into_iter().map(|rate| Self::made_up(options, kind, rate)));
        }
        if let Some(path) = &options.trace {
            scenarios.push(Self::of_trace(options, path)?);
        }
        Ok(scenarios)
    }

    fn made_up(options: &SimulateOptions, kind: WorkloadKind, rate: f64) -> Self {
        let of_seed = |seed: &u64| Workload::made_up(kind, rate, options.requests as usize, *seed);
        Self { name: kind.name().to_owned(), rate, workloads: options.seed.iter().map(of_seed).collect() }
    }

    /// A trace has its times and lengths from the world, so seeds only decide what the prompts say, and one is enough.
    fn of_trace(options: &SimulateOptions, path: &Path) -> Result<Self, SimulateError> {
        let scale = TraceScale { speed: options.speed, length: options.length_scale };
        let trace = Trace::open(path, scale)?;
        let name = path.file_stem().unwrap_or(path.as_os_str()).to_string_lossy().into_owned();
        let (requests, context) = (options.requests as usize, options.preset.context_tokens);
        let seed = options.seed.first().copied().unwrap_or_default();
        let workload = Workload::of_trace(name.clone(), &trace, requests, context, seed);
        if workload.chats.is_empty() {
            let message = format!("{}: no request fits a context of {context} tokens", path.display());
            return Err(SimulateError::Usage(message));
        }
        Ok(Self { name, rate: workload.rate(), workloads: vec![workload] })
    }

    pub(crate) fn left_out(&self) -> usize {
        self.workloads.iter().map(|workload| workload.left_out).sum()
    }
}

/// Of the first layout, where layouts are given.
pub(crate) fn engines(options: &SimulateOptions) -> usize {
    options.layout.first().map_or(options.engines.into(), |layout| layout.engines())
}
