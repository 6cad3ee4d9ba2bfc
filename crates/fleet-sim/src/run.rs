//! One strategy over one fleet: what a simulation is of, and what leaves it.

use std::fmt;

use baton_engine::EngineError;
use baton_router::{Parameters, PrefillUse, Role, STRATEGIES, StrategyError, StrategyKind};
use thiserror::Error;

use crate::preset::Preset;
use crate::record::Records;
use crate::summary::Summary;
use crate::workload::Workload;
use crate::world::World;

/// How many engines there are of each role.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Layout {
    pub prefill: usize,
    pub decode: usize,
    pub mixed: usize,
}

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

impl Layout {
    pub fn mixed(engines: usize) -> Self {
        Self { mixed: engines, ..Self::default() }
    }

    pub fn split(prefill: usize, decode: usize) -> Self {
        Self { prefill, decode, mixed: 0 }
    }

    pub fn engines(self) -> usize {
        self.prefill + self.decode + self.mixed
    }

    /// With their names, as `baton serve` gives them.
    pub(crate) fn members(self) -> Vec<(String, Role)> {
        let of = |role: Role, count| (0..count).map(move |at| (format!("{}-{at}", role.name()), role));
        let engines = of(Role::Prefill, self.prefill).chain(of(Role::Decode, self.decode));
        engines.chain(of(Role::Mixed, self.mixed)).collect()
    }

    /// The ways to divide engines into those that compute prompts and those that decode: half and half and, of four, also
    /// one or three of them.
    fn splits(engines: usize) -> Vec<Self> {
        let half = engines / 2;
        let prefill = if engines == 4 { vec![half, 1, 3] } else { vec![half] };
        prefill
            .into_iter()
            .filter(|prefill| (1..engines).contains(prefill))
            .map(|p| Self::split(p, engines - p))
            .collect()
    }
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

/// `4`, `2P+2D`.
impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self { prefill: 0, decode: 0, mixed } => write!(f, "{mixed} mixed"),
            Self { prefill, decode, mixed: 0 } => write!(f, "{prefill}P+{decode}D"),
            Self { prefill, decode, mixed } => write!(f, "{prefill}P+{decode}D+{mixed} mixed"),
        }
    }
}

/// `disagg 0.1, 2P+2D`.
impl fmt::Display for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.strategy)?;
        for value in self.parameters.values() {
            write!(f, " {value}")?;
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
            (1, vec!["round-robin", "least-loaded", "prefix-aware", "session-affinity"]),
            (
                2,
                vec![
                    "round-robin",
                    "least-loaded",
                    "prefix-aware",
                    "session-affinity",
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

    #[test]
    fn members_are_named_by_their_roles() {
        let names: Vec<_> = Layout::split(1, 2).members().into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["prefill-0", "decode-0", "decode-1"]);
    }
}
