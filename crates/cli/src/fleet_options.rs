//! Options that name engines: those that `serve` starts or attaches, and those of `router`.

use std::str::FromStr;

use baton_launcher::{Endpoint, Host};
use baton_router::Role;
use clap::{Args, ValueEnum};
use serde::Deserialize;

use crate::failure::Failure;

/// Engines of `baton serve`, as a number of each kind or listed one by one.
#[derive(Args, Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
#[command(next_help_heading = "Engines")]
pub(crate) struct FleetOptions {
    /// Engines that compute prompts and hand their KV over; 0: the decode engines do both [default: 1]
    #[arg(long, value_name = "N")]
    pub(crate) prefill: Option<usize>,

    /// Engines that decode [default: 1]
    #[arg(long, value_name = "N")]
    pub(crate) decode: Option<usize>,

    /// Ports of engines one by one, like 9001,9002; they serve round-robin unless --router-mode or --prefill is given
    #[arg(long, value_name = "PORTS", value_delimiter = ',')]
    pub(crate) endpoint_ports: Option<Vec<u16>>,

    /// Their hosts; engines on other machines must run already [default: 127.0.0.1 for each]
    #[arg(long, value_name = "HOSTS", value_delimiter = ',')]
    pub(crate) endpoint_hosts: Option<Vec<Host>>,

    /// Tensor-parallel shards of each engine, like 2,1 [default: 1 for each]
    #[arg(long, value_name = "NUMBERS", value_delimiter = ',')]
    pub(crate) endpoint_num_gpus: Option<Vec<usize>>,

    /// What engines compute with [default: auto]
    #[arg(long, value_name = "BACKEND")]
    pub(crate) model_lib: Option<ModelLib>,

    /// Engines without a model, of this speed and with these faults: --model-lib mock with options (docs/mock.md)
    #[arg(long, value_name = "KEY=VALUE,…")]
    pub(crate) mock: Option<String>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum ModelLib {
    /// The best this machine has
    #[default]
    Auto,
    Cpu,
    /// No model at all: see `baton engine --mock`
    Mock,
}

impl FleetOptions {
    /// The options of mocks, if engines are mocks.
    pub(crate) fn mock(&self) -> Result<Option<&str>, Failure> {
        match (&self.mock, self.model_lib) {
            (Some(_), Some(ModelLib::Auto | ModelLib::Cpu)) => Err(Failure::user("--mock is for --model-lib mock")),
            (Some(options), _) => Ok(Some(options)),
            (None, Some(ModelLib::Mock)) => Ok(Some("")),
            (None, _) => Ok(None),
        }
    }

    /// Takes options that are not set here from `other`.
    pub(crate) fn or(self, other: Self) -> Self {
        Self {
            prefill: self.prefill.or(other.prefill),
            decode: self.decode.or(other.decode),
            endpoint_ports: self.endpoint_ports.or(other.endpoint_ports),
            endpoint_hosts: self.endpoint_hosts.or(other.endpoint_hosts),
            endpoint_num_gpus: self.endpoint_num_gpus.or(other.endpoint_num_gpus),
            model_lib: self.model_lib.or(other.model_lib),
            mock: self.mock.or(other.mock),
        }
    }
}

/// An engine of `baton router`: `http://host:port=role`, with or without scheme and role.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct EngineUrl {
    pub(crate) endpoint: Endpoint,
    pub(crate) role: Role,
}

impl FromStr for EngineUrl {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (endpoint, role) = text.split_once('=').unwrap_or((text, Role::Mixed.name()));
        let role = role.parse()?;
        Ok(Self { endpoint: endpoint.parse()?, role })
    }
}
