//! What `baton serve` will do: every option decided and checked, before anything is started.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use baton_model::{DEFAULT_MODEL, DecoderSpec};
use baton_protocol::Secret;

use crate::failure::Failure;
use crate::options::{EngineOptions, RouterMode, ServeOptions};
use crate::sizing::{EngineSize, Machine};

pub(crate) const DEFAULT_PORT: u16 = 8000;
/// Where engines listen.
const ENGINE_HOST: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const DEFAULT_DRAIN_S: u64 = 30;
/// More are a typing error, and would be a fork bomb.
const MAX_ENGINES: usize = 256;

#[derive(Debug)]
pub(crate) struct ServeConfig {
    pub(crate) model: String,
    pub(crate) listen: SocketAddr,
    pub(crate) prefill: usize,
    pub(crate) decode: usize,
    pub(crate) router_mode: RouterMode,
    pub(crate) pd_balance_factor: f64,
    pub(crate) drain_timeout: Duration,
    pub(crate) secret: Secret,
    engine: EngineOptions,
}

impl ServeConfig {
    pub(crate) fn decide(options: ServeOptions) -> Result<Self, Failure> {
        let prefill_wanted = matches!(options.router_mode, None | Some(RouterMode::Disagg));
        let (prefill, decode) = (options.prefill.unwrap_or(prefill_wanted.into()), options.decode.unwrap_or(1));
        if decode == 0 || prefill.saturating_add(decode) > MAX_ENGINES {
            let message = format!("--decode must be at least 1, and engines at most {MAX_ENGINES} in all");
            return Err(Failure::user(format!("{message}, not {prefill} + {decode}")));
        }
        let pd_balance_factor = options.pd_balance_factor.unwrap_or(0.0);
        if !(0.0..1.0).contains(&pd_balance_factor) {
            return Err(Failure::user(format!(
                "--pd-balance-factor must be at least 0 and below 1, not {pd_balance_factor}"
            )));
        }
        let default_mode = if prefill > 0 { RouterMode::Disagg } else { RouterMode::LeastLoaded };
        let router_mode = options.router_mode.unwrap_or(default_mode);
        match (router_mode, prefill) {
            (RouterMode::Disagg, 0) => {
                return Err(Failure::user("--router-mode disagg needs prefill engines").hint("add --prefill 1"));
            }
            (RouterMode::RoundRobin | RouterMode::LeastLoaded, 1..) => {
                let message = "prefill engines take part in --router-mode disagg only";
                return Err(Failure::user(message).hint("leave out --router-mode or --prefill"));
            }
            _ => {}
        }
        check(&options.engine)?;
        let secret = match options.secret.given([ENGINE_HOST])? {
            Some(secret) => secret,
            None => Secret::random().map_err(Failure::ours)?,
        };
        let host = options.router_host.unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST));
        Ok(Self {
            model: options.model.unwrap_or_else(|| DEFAULT_MODEL.to_owned()),
            listen: SocketAddr::new(host, options.router_port.unwrap_or(DEFAULT_PORT)),
            prefill,
            decode,
            router_mode,
            pd_balance_factor,
            drain_timeout: Duration::from_secs(options.drain_timeout.unwrap_or(DEFAULT_DRAIN_S)),
            secret,
            engine: options.engine,
        })
    }

    pub(crate) fn engine_size(&self, model: &DecoderSpec, machine: Machine) -> Result<EngineSize, Failure> {
        engine_size(&self.engine, model, machine, self.prefill + self.decode)
    }
}

pub(crate) fn check(options: &EngineOptions) -> Result<(), Failure> {
    // More is a typing error, and would fail later and less clearly.
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
    let size = EngineSize::decide(options, model, machine, engines);
    if let Err(misfit) = model.check_tp(size.tp) {
        let fitting: Vec<_> = model.fitting_tps().map(|tp| tp.to_string()).collect();
        return Err(Failure::user(misfit).hint(format!("--tp can be {} here", fitting.join(", "))));
    }
    if size.kv_pages == 0 {
        return Err(Failure::user("--kv-memory is less than one page of this model"));
    }
    Ok(size)
}
