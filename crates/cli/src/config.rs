//! The configuration of a command: every option is decided and checked before anything is started.

use std::time::Duration;

use baton_gateway::GatewayConfig;
use baton_launcher::{Endpoint, Host};
use baton_model::DecoderSpec;

use crate::api_key::api_key;
use crate::byte_size::ByteSize;
use crate::failure::Failure;
use crate::options::EngineOptions;
use crate::router_options::RouterOptions;
use crate::sizing::{EngineSize, Machine};

pub(crate) const DEFAULT_PORT: u16 = 8000;
const DEFAULT_DRAIN_S: u64 = 30;
const DEFAULT_CONNECT_S: u64 = 30;
const DEFAULT_HANG_S: u64 = 3;
const LONGEST_HANG_S: u64 = 24 * 60 * 60;
const LEAST_BODY_MEMORY: u64 = 1 << 20;

/// Gateway and router.
#[derive(Debug)]
pub(crate) struct RouterConfig {
    pub(crate) listen: Endpoint,
    pub(crate) gateway: GatewayConfig,
    pub(crate) connect_timeout: Duration,
    pub(crate) hang_timeout: Duration,
    pub(crate) drain_timeout: Duration,
}

impl RouterConfig {
    pub(crate) fn decide(options: RouterOptions) -> Result<Self, Failure> {
        let hang_s = options.hang_timeout.unwrap_or(DEFAULT_HANG_S);
        if !(1..=LONGEST_HANG_S).contains(&hang_s) {
            return Err(Failure::user(format!("--hang-timeout must be between 1 and {LONGEST_HANG_S}")));
        }
        let mut gateway = GatewayConfig { api_key: api_key(options.api_key.as_ref())?, ..GatewayConfig::default() };
        if let Some(ByteSize(bytes)) = options.body_memory {
            if bytes < LEAST_BODY_MEMORY {
                return Err(Failure::user("--body-memory must be at least 1M: one body may take half of it"));
            }
            gateway.body_memory_bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        }
        Ok(Self {
            listen: Endpoint {
                host: options.router_host.unwrap_or_else(Host::localhost),
                port: options.router_port.unwrap_or(DEFAULT_PORT),
            },
            gateway,
            connect_timeout: Duration::from_secs(options.connect_timeout.unwrap_or(DEFAULT_CONNECT_S)),
            hang_timeout: Duration::from_secs(hang_s),
            drain_timeout: Duration::from_secs(options.drain_timeout.unwrap_or(DEFAULT_DRAIN_S)),
        })
    }
}

pub(crate) fn check(options: &EngineOptions) -> Result<(), Failure> {
    // Larger numbers are typing errors, which would fail later and less clearly.
    let counts = [
        ("--threads", options.threads, 1024),
        ("--tp", options.tp, 1024),
        ("--kv-pages", options.kv_pages, u32::MAX as usize),
        ("--step-tokens", options.step_tokens, 1 << 20),
        ("--max-slots", options.max_slots, 1 << 16),
        ("--max-waiting", options.max_waiting, 1 << 20),
    ];
    for (option, count, most) in counts {
        if count.is_some_and(|count| !(1..=most).contains(&count)) {
            return Err(Failure::user(format!("{option} must be between 1 and {most}")));
        }
    }
    Ok(())
}

pub(crate) fn engine_size(
    options: &EngineOptions,
    model: &DecoderSpec,
    machine: Machine,
    engines: usize,
) -> Result<EngineSize, Failure> {
    let size = EngineSize::decide(options, model, machine, engines)?;
    if let Err(misfit) = model.check_tp(size.tp) {
        let fitting: Vec<_> = model.fitting_tps().map(|tp| tp.to_string()).collect();
        return Err(Failure::user(misfit).hint(format!("--tp can be {} here", fitting.join(", "))));
    }
    if size.kv_pages == 0 {
        return Err(Failure::user("--kv-memory is less than one page of this model"));
    }
    Ok(size)
}
