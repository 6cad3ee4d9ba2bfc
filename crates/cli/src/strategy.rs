//! Strategies as options: one of the router's by its name, and the parameters of all of them.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use baton_router::{
    Auto, Parameter, Parameters, PrefillUse, RoundRobin, STRATEGIES, Strategy, StrategyError, StrategyKind,
    strategy_kind,
};
use clap::builder::PossibleValue;
use clap::error::Result as Parsed;
use clap::{Arg, ArgMatches, Args, Command, FromArgMatches, ValueEnum, value_parser};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};

use crate::failure::Failure;

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(try_from = "String")]
pub(crate) struct RouterMode(&'static StrategyKind);

impl RouterMode {
    pub(crate) const AUTO: Self = Self(&Auto::KIND);
    pub(crate) const ROUND_ROBIN: Self = Self(&RoundRobin::KIND);

    pub(crate) fn name(self) -> &'static str {
        self.0.name
    }

    pub(crate) fn prefill(self) -> PrefillUse {
        self.0.prefill
    }

    pub(crate) fn strategy(self, given: &StrategyParameters) -> Result<Arc<dyn Strategy>, Failure> {
        self.0.make(&given.0).map_err(|error| match error {
            StrategyError::OutOfBounds { name, bounds, value } => {
                Failure::user(format!("--{} must be {bounds}, not {value}", flag(name)))
            }
            StrategyError::UnknownParameter { strategy, name, .. } => {
                let takes = |kind: &&StrategyKind| kind.parameters.iter().any(|parameter| parameter.name == name);
                let others: Vec<_> = STRATEGIES.into_iter().filter(takes).map(|kind| kind.name).collect();
                let message = format!("{strategy} takes no --{}", flag(&name));
                Failure::user(message).hint(format!("it belongs to {}", others.join(" or ")))
            }
            error @ StrategyError::Unknown { .. } => Failure::user(error),
        })
    }
}

impl PartialEq for RouterMode {
    fn eq(&self, other: &Self) -> bool {
        self.name() == other.name()
    }
}

impl TryFrom<String> for RouterMode {
    type Error = StrategyError;

    fn try_from(name: String) -> Result<Self, StrategyError> {
        strategy_kind(&name).map(Self)
    }
}

impl ValueEnum for RouterMode {
    fn value_variants<'a>() -> &'a [Self] {
        static MODES: LazyLock<Vec<RouterMode>> = LazyLock::new(|| STRATEGIES.into_iter().map(RouterMode).collect());
        &MODES
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        Some(PossibleValue::new(self.name()).help(self.0.about))
    }
}

/// Those that were given, of any strategy.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct StrategyParameters(Parameters);

/// A parameter of one strategy or more, with its option.
struct ParameterOption {
    parameter: &'static Parameter,
    flag: String,
    help: String,
}

static OPTIONS: LazyLock<Vec<ParameterOption>> = LazyLock::new(|| {
    let mut options: Vec<ParameterOption> = Vec::new();
    for kind in STRATEGIES {
        for parameter in kind.parameters {
            match options.iter_mut().find(|option| option.parameter.name == parameter.name) {
                Some(option) => option.help = format!("{}, {}", kind.name, option.help),
                None => options.push(ParameterOption {
                    parameter,
                    flag: flag(parameter.name),
                    help: format!("{}: {} [default: {}]", kind.name, parameter.about, parameter.default),
                }),
            }
        }
    }
    options
});

fn flag(parameter: &str) -> String {
    parameter.replace('_', "-")
}

impl StrategyParameters {
    pub(crate) fn or(mut self, other: Self) -> Self {
        for (name, value) in other.0 {
            self.0.entry(name).or_insert(value);
        }
        self
    }

    pub(crate) fn values(&self) -> &Parameters {
        &self.0
    }
}

#[cfg(test)]
impl<const N: usize> From<[(&str, f64); N]> for StrategyParameters {
    fn from(given: [(&str, f64); N]) -> Self {
        Self(given.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
    }
}

impl Args for StrategyParameters {
    fn augment_args(command: Command) -> Command {
        OPTIONS.iter().fold(command, |command, option| {
            let ParameterOption { parameter, flag, help } = option;
            let number = Arg::new(parameter.name).long(flag.as_str()).value_name("NUMBER").help(help.as_str());
            command.arg(number.value_parser(value_parser!(f64)).allow_negative_numbers(true))
        })
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for StrategyParameters {
    fn from_arg_matches(matches: &ArgMatches) -> Parsed<Self> {
        let mut given = Self::default();
        given.update_from_arg_matches(matches)?;
        Ok(given)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Parsed<()> {
        for option in OPTIONS.iter() {
            let name = option.parameter.name;
            if let Some(value) = matches.get_one::<f64>(name) {
                self.0.insert(name.to_owned(), *value);
            }
        }
        Ok(())
    }
}

/// Other keys belong to other options.
impl<'de> Deserialize<'de> for StrategyParameters {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut keys = BTreeMap::<String, toml::Value>::deserialize(deserializer)?;
        let mut given = Parameters::new();
        for ParameterOption { parameter, flag, .. } in OPTIONS.iter() {
            let value = match keys.remove(flag) {
                None => continue,
                Some(toml::Value::Float(value)) => value,
                Some(toml::Value::Integer(value)) => value as f64,
                Some(other) => return Err(D::Error::custom(format!("expected a number, not a {}", other.type_str()))),
            };
            given.insert(parameter.name.to_owned(), value);
        }
        Ok(Self(given))
    }
}
