//! What a strategy is to those who choose it by name: its name, its parameters and how it is made.

use std::fmt;
use std::sync::Arc;

use thiserror::Error;

use crate::strategy::{Parameters, Strategy};

pub struct StrategyKind {
    pub name: &'static str,
    /// What it does, as a few words.
    pub about: &'static str,
    pub prefill: PrefillUse,
    pub parameters: &'static [Parameter],
    /// From parameters that have been checked.
    pub(super) make: fn(&Parameters) -> Arc<dyn Strategy>,
}

/// What engines that only compute prompts are to a strategy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PrefillUse {
    Never,
    IfThere,
    Always,
}

/// A number that a strategy is made with.
pub struct Parameter {
    pub name: &'static str,
    pub about: &'static str,
    pub default: f64,
    pub at_least: f64,
    pub below: f64,
    /// Fractions are refused.
    pub is_whole: bool,
}

#[derive(Clone, Debug, PartialEq, Error)]
pub enum StrategyError {
    #[error("unknown strategy {name:?}: there are {}{}", listed(known), suggestion(*near))]
    Unknown { name: String, known: Vec<&'static str>, near: Option<&'static str> },
    #[error("{strategy} has no parameter {name:?}: it has {}", listed(known))]
    UnknownParameter { strategy: &'static str, name: String, known: Vec<&'static str> },
    #[error("{name} must be {bounds}, not {value}")]
    OutOfBounds { name: &'static str, bounds: String, value: f64 },
}

impl StrategyKind {
    /// Parameters that are not given have their defaults.
    pub fn make(&self, given: &Parameters) -> Result<Arc<dyn Strategy>, StrategyError> {
        for (name, value) in given {
            let parameter = self.parameters.iter().find(|parameter| parameter.name == name);
            let unknown = || StrategyError::UnknownParameter {
                strategy: self.name,
                name: name.clone(),
                known: self.parameters.iter().map(|parameter| parameter.name).collect(),
            };
            parameter.ok_or_else(unknown)?.check(*value)?;
        }
        Ok((self.make)(given))
    }
}

impl fmt::Debug for StrategyKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

impl Parameter {
    pub fn check(&self, value: f64) -> Result<(), StrategyError> {
        match (self.at_least..self.below).contains(&value) && !(self.is_whole && value.fract() != 0.0) {
            true => Ok(()),
            false => Err(StrategyError::OutOfBounds { name: self.name, bounds: self.bounds(), value }),
        }
    }

    /// Its value among those that are given, or its default.
    pub(super) fn of(&self, given: &Parameters) -> f64 {
        given.get(self.name).copied().unwrap_or(self.default)
    }

    fn bounds(&self) -> String {
        let whole = if self.is_whole { "a whole number, " } else { "" };
        format!("{whole}at least {} and below {}", self.at_least, self.below)
    }
}

fn listed(names: &[&str]) -> String {
    match names {
        [] => "none".to_owned(),
        [one] => (*one).to_owned(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}

fn suggestion(near: Option<&str>) -> String {
    near.map_or_else(String::new, |near| format!("; did you mean {near}?"))
}
