//! One strategy over one fleet: what a simulation is of, and what leaves it.

use std::fmt;

use baton_engine::EngineError;
use baton_router::{Auto, Parameters, PrefillUse, STRATEGIES, StrategyError, StrategyKind, strategy_kind};
use thiserror::Error;

use crate::layout::Layout;
use crate::preset::Preset;
use crate::record::Records;
use crate::summary::Summary;
use crate::workload::Workload;
use crate::world::World;

#[derive(Clone, Debug, PartialEq)]
pub struct Run {
    /// As in the router's registry.
    pub strategy: String,
    /// Those that are left out have their defaults.
    pub parameters: Parameters,
    pub layout: Layout,
}

pub struct Outcome {
    pub run: Run,
    pub records: Records,
    pub summary: Summary,
}

#[derive(Debug, Error)]
pub enum SimulationError {
    #[error(transparent)]
    Strategy(#[from] StrategyError),
    #[error("{layout}: there must be at least one engine")]
    NoEngines { layout: Layout },
    #[error("engine {engine}: {error}")]
    Engine { engine: usize, error: EngineError },
    /// A fault of the router, of an engine or of this simulation.
    #[error("{open} requests are open, and nothing is left to happen")]
    Stuck { open: usize },
}

impl Run {
    pub fn new(strategy: &str, parameters: &[(&str, f64)], layout: Layout) -> Self {
        let parameters = parameters.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect();
        Self { strategy: strategy.to_owned(), parameters, layout }
    }

    /// Every strategy of the registry in its usual layouts.
    pub fn usual(engines: usize) -> Vec<Self> {
        STRATEGIES.iter().flat_map(|kind| Self::usual_of(kind, engines)).collect()
    }

    /// It decides by itself how engines share the work, so no layout or parameter is a choice of its user's.
    pub fn adapts(&self) -> bool {
        self.strategy == Auto::KIND.name
    }

    pub fn usual_of(kind: &StrategyKind, engines: usize) -> Vec<Self> {
        let mixed = (kind.prefill != PrefillUse::Always).then(|| Layout::mixed(engines));
        let splits = if kind.prefill == PrefillUse::Never { Vec::new() } else { Layout::splits(engines) };
        let balance = kind.parameters.iter().find(|parameter| parameter.name == "pd_balance_factor");
        let parameters: Vec<Vec<(&str, f64)>> = match balance {
            Some(factor) => [0.0, 0.1, 0.3].map(|value| vec![(factor.name, value)]).to_vec(),
            _ => vec![Vec::new()],
        };
        let layouts = mixed.into_iter().chain(splits);
        layouts.flat_map(|layout| parameters.iter().map(move |given| Self::new(kind.name, given, layout))).collect()
    }

    pub fn simulate(&self, preset: &Preset, workload: &Workload) -> Result<Outcome, SimulationError> {
        let mut world = World::new(self, preset, workload)?;
        let (records, preemptions) = world.run()?;
        let summary = Summary::of(&records, preset.slo, preemptions);
        Ok(Outcome { run: self.clone(), records, summary })
    }
}

/// `disagg 0.1, 2P+2D`; a parameter's name is left out where the strategy has no other.
impl fmt::Display for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.strategy)?;
        let has_one = strategy_kind(&self.strategy).is_ok_and(|kind| kind.parameters.len() == 1);
        for (name, value) in &self.parameters {
            if has_one { write!(f, " {value}")? } else { write!(f, " {name}={value}")? }
        }
        if self.layout.prefill + self.layout.decode > 0 { write!(f, ", {}", self.layout) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usual_runs_by_table() {
        for (engines, expected) in [
            (1, vec!["round-robin", "least-loaded", "prefix-aware", "session-affinity", "context-migration"]),
            (
                2,
                vec![
                    "round-robin",
                    "least-loaded",
                    "prefix-aware",
                    "session-affinity",
                    "context-migration",
                    "disagg 0, 1P+1D",
                    "disagg 0.1, 1P+1D",
                    "disagg 0.3, 1P+1D",
                ],
            ),
        ] {
            let fixed = Run::usual(engines).into_iter().filter(|run| run.strategy != "auto");
            assert_eq!(fixed.map(|run| run.to_string()).collect::<Vec<_>>(), expected, "{engines}");
        }
        let of_four: Vec<_> = Run::usual(4).iter().filter(|run| run.strategy == "disagg").map(|r| r.layout).collect();
        assert_eq!(of_four.iter().map(|layout| layout.prefill).collect::<Vec<_>>(), [2, 2, 2, 1, 1, 1, 3, 3, 3]);
    }
}
