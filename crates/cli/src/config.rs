//! What `baton serve` will do: every option decided and checked, before anything is started.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use baton_model::{DEFAULT_MODEL, DecoderSpec};

use crate::failure::Failure;
use crate::options::{EngineOptions, RouterMode, ServeOptions};
use crate::sizing::{EngineSize, Machine};

pub(crate) const DEFAULT_PORT: u16 = 8000;
const DEFAULT_DRAIN_S: u64 = 30;
/// More are a typing error, and would be a fork bomb.
const MAX_ENGINES: usize = 256;

#[derive(Debug)]
pub(crate) struct ServeConfig {
    pub(crate) model: String,
    pub(crate) listen: SocketAddr,
    pub(crate) engines: usize,
    pub(crate) router_mode: RouterMode,
    pub(crate) drain_timeout: Duration,
    engine: EngineOptions,
}

impl ServeConfig {
    pub(crate) fn decide(options: ServeOptions) -> Result<Self, Failure> {
        if options.prefill.is_some_and(|engines| engines > 0) {
            return Err(Failure::user(
                "--prefill: separate prefill engines come with the hand-off, not in this version",
            )
            .hint("--decode N starts N engines that do both"));
        }
        let engines = options.decode.unwrap_or(1);
        if !(1..=MAX_ENGINES).contains(&engines) {
            return Err(Failure::user(format!("--decode must be between 1 and {MAX_ENGINES}, not {engines}")));
        }
        check(&options.engine)?;
        let host = options.router_host.unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST));
        Ok(Self {
            model: options.model.unwrap_or_else(|| DEFAULT_MODEL.to_owned()),
            listen: SocketAddr::new(host, options.router_port.unwrap_or(DEFAULT_PORT)),
            engines,
            router_mode: options.router_mode.unwrap_or_default(),
            drain_timeout: Duration::from_secs(options.drain_timeout.unwrap_or(DEFAULT_DRAIN_S)),
            engine: options.engine,
        })
    }

    pub(crate) fn engine_size(&self, model: &DecoderSpec, machine: Machine) -> Result<EngineSize, Failure> {
        engine_size(&self.engine, model, machine, self.engines)
    }
}

pub(crate) fn check(options: &EngineOptions) -> Result<(), Failure> {
    let counts = [
        ("--threads", options.threads),
        ("--kv-pages", options.kv_pages),
        ("--step-tokens", options.step_tokens),
        ("--max-slots", options.max_slots),
        ("--max-waiting", options.max_waiting),
    ];
    match counts.into_iter().find(|(_, count)| *count == Some(0)) {
        Some((option, _)) => Err(Failure::user(format!("{option} must be at least 1"))),
        None => Ok(()),
    }
}

pub(crate) fn engine_size(
    options: &EngineOptions,
    model: &DecoderSpec,
    machine: Machine,
    engines: usize,
) -> Result<EngineSize, Failure> {
    let size = EngineSize::decide(options, model, machine, engines);
    if size.kv_pages == 0 {
        return Err(Failure::user("--kv-memory is less than one page of this model"));
    }
    Ok(size)
}
