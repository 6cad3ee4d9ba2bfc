//! A strategy as it is typed: `auto`, `disagg:pd_balance_factor=0.2`, `auto:move_roles=0:ttft_ms=500`.

use std::str::FromStr;

use baton_router::{Parameters, StrategyKind, strategy, strategy_kind};

use crate::layout::Layout;
use crate::run::Run;

#[derive(Clone, Debug)]
pub(crate) struct Choice {
    kind: &'static StrategyKind,
    parameters: Parameters,
}

impl Choice {
    /// In the layouts that are given, or else in its usual ones; with the parameters that are given, or else the usual ones.
    pub(crate) fn runs(&self, layouts: &[Layout], engines: usize) -> Vec<Run> {
        let mut runs: Vec<Run> = Vec::new();
        let usual = Run::usual_of(self.kind, engines);
        let of_layout =
            |layout: &Layout| usual.iter().map(|run| Run { layout: *layout, ..run.clone() }).collect::<Vec<_>>();
        let all = if layouts.is_empty() { usual.clone() } else { layouts.iter().flat_map(of_layout).collect() };
        for mut run in all {
            if !self.parameters.is_empty() {
                run.parameters = self.parameters.clone();
            }
            if !runs.contains(&run) {
                runs.push(run);
            }
        }
        runs
    }
}

impl FromStr for Choice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut parts = text.split(':');
        let kind = strategy_kind(parts.next().unwrap_or_default()).map_err(|error| error.to_string())?;
        let parameter = |part: &str| {
            let wrong = || format!("`{part}` is not a parameter: write {}:NAME=NUMBER", kind.name);
            let (name, value) = part.split_once('=').ok_or_else(wrong)?;
            Ok((name.replace('-', "_"), value.parse().map_err(|_| wrong())?))
        };
        let parameters = parts.map(parameter).collect::<Result<Parameters, String>>()?;
        strategy(kind.name, &parameters).map_err(|error| error.to_string())?;
        Ok(Self { kind, parameters })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runs(text: &str, layouts: &[Layout], engines: usize) -> Vec<String> {
        let runs = text.parse::<Choice>().unwrap().runs(layouts, engines);
        runs.iter().map(|run| format!("{run} on {}", run.layout)).collect()
    }

    #[test]
    fn which_runs_by_table() {
        assert_eq!(runs("round-robin", &[], 3), ["round-robin on 3 mixed"]);
        assert_eq!(runs("disagg:pd-balance-factor=0.2", &[], 2), ["disagg 0.2, 1P+1D on 1P+1D"]);
        assert_eq!(runs("disagg:pd_balance_factor=0.2", &[Layout::split(1, 2)], 3), ["disagg 0.2, 1P+2D on 1P+2D"]);
        assert_eq!(
            runs("auto:move_roles=0", &[], 2),
            ["auto move_roles=0 on 2 mixed", "auto move_roles=0, 1P+1D on 1P+1D"]
        );
    }

    #[test]
    fn mistakes_by_table() {
        for (text, message) in [
            ("autos", "did you mean auto?"),
            ("auto:x", "`x` is not a parameter: write auto:NAME=NUMBER"),
            ("disagg:pd_balance_factor=half", "write disagg:NAME=NUMBER"),
            ("disagg:pd_balance_factor=2", "must be at least 0 and below 1, not 2"),
            ("round-robin:n=1", "round-robin has no parameter"),
        ] {
            let error = text.parse::<Choice>().unwrap_err();
            assert!(error.contains(message), "{text}: {error}");
        }
    }
}
