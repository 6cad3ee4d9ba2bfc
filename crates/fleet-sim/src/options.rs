//! `baton simulate`, as it is typed.

use std::path::PathBuf;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{Args, ValueEnum};

use crate::choice::Choice;
use crate::layout::Layout;
use crate::preset::{PRESETS, Preset, preset};
use crate::workload::WorkloadKind;

#[derive(Args, Debug)]
pub struct SimulateOptions {
    /// What each engine is: a model on a device
    #[arg(long, value_name = "NAME", default_value = "h100-8b", value_parser = presets())]
    pub(crate) preset: &'static Preset,

    /// How many engines there are
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=64))]
    pub(crate) engines: u16,

    /// What is sent; several with commas [default: short-chat,long-prompts,mixed, or the trace alone]
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub(crate) workload: Vec<WorkloadKind>,

    /// Send the requests of a trace in Mooncake's format, at its times
    #[arg(long, value_name = "FILE")]
    pub(crate) trace: Option<PathBuf>,

    /// Replay the trace this many times as fast
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0, value_parser = positive, requires = "trace")]
    pub(crate) speed: f64,

    /// Make prompts and answers of the trace this many times as long
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0, value_parser = positive, requires = "trace")]
    pub(crate) length_scale: f64,

    /// Requests per second of a workload; several with commas [default: what keeps the engines busy, by an estimate]
    #[arg(long, value_name = "NUMBER", value_delimiter = ',', value_parser = positive)]
    pub(crate) rate: Vec<f64>,

    /// Requests of each run
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) requests: u32,

    /// The same seed gives the same result; of several, with commas, figures are the mean
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "1")]
    pub(crate) seed: Vec<u64>,

    /// Strategies, with parameters like auto:move_roles=0; several with commas [default: all there are]
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub(crate) strategy: Vec<Choice>,

    /// How engines share the work, like 4 or 1P+3D; several with commas [default: what suits each strategy]
    #[arg(long, value_name = "LAYOUT", value_delimiter = ',', conflicts_with = "engines")]
    pub(crate) layout: Vec<Layout>,

    /// Save the result
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,

    /// Save the result as a page with plots
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,
}

fn presets() -> impl TypedValueParser<Value = &'static Preset> {
    let named = PRESETS.iter().map(|preset| PossibleValue::new(preset.name).help(preset.about));
    // Only names of presets are possible.
    PossibleValuesParser::new(named).map(|name| preset(&name).unwrap_or(&PRESETS[0]))
}

fn positive(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(value) if value.is_finite() && value > 0.0 => Ok(value),
        _ => Err("not a positive number".to_owned()),
    }
}

impl ValueEnum for WorkloadKind {
    fn value_variants<'a>() -> &'a [Self] {
        &Self::ALL
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        Some(PossibleValue::new(self.name()).help(self.about()))
    }
}
