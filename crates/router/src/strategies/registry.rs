//! The strategies that can be chosen by name: on the command line, and while a router serves.

use std::sync::Arc;

use super::kind::{StrategyError, StrategyKind};
use super::{Auto, ContextMigration, Disagg, LeastLoaded, PrefixAware, RoundRobin, SessionAffinity};
use crate::strategy::{Parameters, Strategy};

pub static STRATEGIES: [&StrategyKind; 7] = [
    &Auto::KIND,
    &RoundRobin::KIND,
    &LeastLoaded::KIND,
    &PrefixAware::KIND,
    &SessionAffinity::KIND,
    &ContextMigration::KIND,
    &Disagg::KIND,
];

/// Parameters that are not given have their defaults.
pub fn strategy(name: &str, given: &Parameters) -> Result<Arc<dyn Strategy>, StrategyError> {
    strategy_kind(name)?.make(given)
}

pub fn strategy_kind(name: &str) -> Result<&'static StrategyKind, StrategyError> {
    let found = STRATEGIES.into_iter().find(|kind| kind.name == name);
    found.ok_or_else(|| StrategyError::Unknown {
        name: name.to_owned(),
        known: STRATEGIES.iter().map(|kind| kind.name).collect(),
        near: near(name),
    })
}

/// The most similar name, if no more than a third of it differs.
fn near(name: &str) -> Option<&'static str> {
    let distances = STRATEGIES.iter().map(|kind| (strsim::levenshtein(name, kind.name), kind.name));
    let (distance, nearest) = distances.min()?;
    (distance <= nearest.len() / 3).then_some(nearest)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn given(parameters: &[(&str, f64)]) -> Parameters {
        parameters.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect()
    }

    #[test]
    fn every_strategy_is_made_by_its_name_and_reports_its_parameters() {
        for kind in STRATEGIES {
            let made = strategy(kind.name, &Parameters::new()).unwrap();
            assert_eq!(made.name(), kind.name);
            let defaults: Parameters = kind.parameters.iter().map(|p| (p.name.to_owned(), p.default)).collect();
            assert_eq!(made.parameters(), defaults, "{}", kind.name);
            for parameter in kind.parameters {
                parameter.check(parameter.default).unwrap();
                let other = parameter.at_least + if parameter.is_whole { 1.0 } else { 0.25 };
                let other = given(&[(parameter.name, other)]);
                let expected: Parameters = defaults.clone().into_iter().chain(other.clone()).collect();
                assert_eq!(kind.make(&other).unwrap().parameters(), expected, "{}", parameter.name);
            }
        }
    }

    #[test]
    fn errors_name_what_there_is() {
        let known = STRATEGIES.map(|kind| kind.name);
        let all = format!("{} and {}", known[..known.len() - 1].join(", "), known[known.len() - 1]);
        for (name, parameters, message) in [
            ("random", given(&[]), format!("unknown strategy \"random\": there are {all}")),
            (
                "roundrobin",
                given(&[]),
                format!("unknown strategy \"roundrobin\": there are {all}; did you mean round-robin?"),
            ),
            ("", given(&[]), format!("unknown strategy \"\": there are {all}")),
            ("round-robin", given(&[("n", 1.0)]), "round-robin has no parameter \"n\": it has none".to_owned()),
            ("disagg", given(&[("pd", 1.0)]), "disagg has no parameter \"pd\": it has pd_balance_factor".to_owned()),
            (
                "disagg",
                given(&[("pd_balance_factor", 1.0)]),
                "pd_balance_factor must be at least 0 and below 1, not 1".to_owned(),
            ),
            (
                "prefix-aware",
                given(&[("load_slack", 0.5)]),
                "load_slack must be a whole number, at least 0 and below 65536, not 0.5".to_owned(),
            ),
            (
                "disagg",
                given(&[("pd_balance_factor", f64::NAN)]),
                "pd_balance_factor must be at least 0 and below 1, not NaN".to_owned(),
            ),
        ] {
            assert_eq!(strategy(name, &parameters).err().unwrap().to_string(), message);
        }
    }
}
