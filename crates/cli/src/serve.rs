//! `baton serve`: starts engines, or attaches to running ones, with router and gateway in front of them.

use std::ffi::OsString;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use baton_core::Program;
use baton_launcher::{Endpoint, EnginePlan, LaunchPlan, Origin, Screen, Shutdown, is_on_this_machine, query_attached};
use baton_model::{DEFAULT_MODEL, DecoderSpec};
use baton_protocol::Secret;
use baton_router::Role;
use clap::{Args, Command, FromArgMatches};

use crate::blueprint::{Blueprint, ENGINE_SILENCE, launch_failure, open_model};
use crate::config::{RouterConfig, check, engine_size};
use crate::config_file;
use crate::core_claims::CoreClaims;
use crate::deploy::{block_on, deploy, on_signals};
use crate::deployment::Deployment;
use crate::failure::Failure;
use crate::machine;
use crate::mock;
use crate::options::{EngineOptions, ServeOptions};
use crate::secret::{SecretOptions, needs_secret};
use crate::sizing::{EngineSize, Machine};
use crate::topology::{Seat, Topology};

/// The address of engines that were not given an endpoint.
const ENGINE_HOST: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

pub(crate) fn run(options: ServeOptions, screen: Screen) -> Result<(), Failure> {
    let file = config_file::read(options.config.as_deref())?;
    let options = options.or(file);
    block_on(async { deploy(plan(options, on_signals()?, screen).await?).await })
}

/// A deployment as `baton serve` with these arguments would make it, without baton.toml unless they name it.
pub async fn prepare(
    arguments: impl IntoIterator<Item = OsString>,
    shutdown: Shutdown,
    screen: Screen,
) -> Result<Deployment, Failure> {
    let command = ServeOptions::augment_args(Command::new("serve").no_binary_name(true).disable_help_flag(true));
    let parsed = command.try_get_matches_from(arguments).and_then(|matches| ServeOptions::from_arg_matches(&matches));
    let mut options = parsed.map_err(Failure::mistyped)?;
    if let Some(file) = &options.config {
        let file = config_file::read(Some(file))?;
        options = options.or(file);
    }
    plan(options, shutdown, screen).await
}

async fn plan(options: ServeOptions, shutdown: Shutdown, screen: Screen) -> Result<Deployment, Failure> {
    let topology = Topology::of_serve(&options.fleet, options.router.router_mode)?;
    let strategy = topology.mode.strategy(&options.router.parameters)?;
    let config = RouterConfig::decide(options.router)?;
    check(&options.engine)?;
    let model = options.model.unwrap_or_else(|| DEFAULT_MODEL.to_owned());
    let files = open_model(&model)?;
    let mut decoder = files.decoder().map_err(Failure::user)?;
    let mock = options.fleet.mock()?.map(str::to_owned);
    if let Some(options) = &mock {
        decoder.max_context = mock::parse(options)?.shape.context_tokens as usize;
    }

    let places: Vec<_> = topology.engines.iter().map(Location::find).collect();
    let secret = secret(&options.secret, &places)?;
    let own = OwnEngines {
        model,
        decoder,
        machine: Machine { cores: baton_cpu::cores(), memory: machine::memory() },
        number: places.iter().filter(|place| matches!(place, Location::Here(_))).count(),
        mock,
        auth: !secret.is_none(),
        options: options.engine,
    };
    let cores = own.cores(&screen)?;
    let mut context_tokens = own.decoder.max_context;
    let (mut engines, mut started) = (Vec::new(), 0);
    for (seat, place) in topology.engines.into_iter().zip(places) {
        let origin = match place {
            Location::Elsewhere(endpoint) => Origin::Attached(endpoint),
            Location::Here(listen) => {
                let size = own.size(&seat)?.with_own_cores(started, own.number, cores.as_ref().map(CoreClaims::cpus));
                started += 1;
                context_tokens = context_tokens.min(size.context_tokens(&own.decoder));
                Origin::Spawned(own.arguments(&seat, listen, &size))
            }
        };
        engines.push(EnginePlan { name: seat.name, role: seat.role, origin });
    }
    let plan = LaunchPlan {
        program: Program::this().map_err(Failure::ours)?,
        engines,
        secret,
        silence: ENGINE_SILENCE,
        patience: config.connect_timeout,
        hang_timeout: config.hang_timeout,
        may_be_missing: false,
    };
    let answers = query_attached(&plan, &screen).await.map_err(launch_failure)?;
    Deployment::new(
        Blueprint { config, strategy, files, context_tokens, engines: plan, cores, answers },
        shutdown,
        screen,
    )
}

enum Location {
    /// On this machine: started by this process.
    Here(SocketAddr),
    /// On another machine, where it runs already or soon will.
    Elsewhere(Endpoint),
}

impl Location {
    fn find(seat: &Seat) -> Self {
        let Some(endpoint) = &seat.place else { return Self::Here(SocketAddr::new(ENGINE_HOST, 0)) };
        // A name that cannot be resolved now may be resolved later.
        let addresses = endpoint.host.addresses().unwrap_or_default();
        match addresses.into_iter().find(|address| is_on_this_machine(*address)) {
            Some(address) => Self::Here(SocketAddr::new(address, endpoint.port)),
            None => Self::Elsewhere(endpoint.clone()),
        }
    }
}

/// Engines elsewhere have been started with a secret, which must be given; for our own a fresh one is made.
fn secret(options: &SecretOptions, places: &[Location]) -> Result<Secret, Failure> {
    let (mut here, mut elsewhere) = (Vec::new(), Vec::new());
    for place in places {
        match place {
            Location::Here(address) => here.push(address.ip()),
            Location::Elsewhere(endpoint) => elsewhere.push(endpoint.clone()),
        }
    }
    match options.given(here)?.filter(|secret| elsewhere.is_empty() || !secret.is_none()) {
        Some(secret) => Ok(secret),
        None if elsewhere.is_empty() => Secret::random().map_err(Failure::ours),
        None => Err(needs_secret(elsewhere)),
    }
}

/// The common settings of all engines that are started here.
struct OwnEngines {
    model: String,
    decoder: DecoderSpec,
    machine: Machine,
    /// The number of engines that share the machine.
    number: usize,
    /// The options of mocks, if engines are mocks.
    mock: Option<String>,
    auth: bool,
    options: EngineOptions,
}

impl OwnEngines {
    /// Cores for all of these engines: those that the user named, or unclaimed ones. Where there are too few, threads are not pinned.
    fn cores(&self, screen: &Screen) -> Result<Option<CoreClaims>, Failure> {
        if self.number == 0 || self.mock.is_some() {
            return Ok(None);
        }
        if let Some(named) = &self.options.cpus {
            return Ok(Some(CoreClaims::hold(named)));
        }
        let wanted = self.number * self.size_with(None)?.threads;
        let Some(all) = machine::cpus(wanted) else { return Ok(None) };
        let claims = CoreClaims::take(&all, wanted);
        if claims.is_none() {
            screen.print("threads are not pinned to cores: other deployments on this machine have pinned theirs to most of them\n");
        }
        Ok(claims)
    }

    fn size(&self, seat: &Seat) -> Result<EngineSize, Failure> {
        let size = self.size_with(seat.shards.or(self.options.tp))?;
        Ok(if seat.role == Role::Prefill { size.for_prompts() } else { size })
    }

    fn size_with(&self, tp: Option<usize>) -> Result<EngineSize, Failure> {
        let options = EngineOptions { tp, ..self.options.clone() };
        engine_size(&options, &self.decoder, self.machine, self.number)
    }

    /// The arguments of an engine's process.
    fn arguments(&self, seat: &Seat, listen: SocketAddr, size: &EngineSize) -> Vec<OsString> {
        let mut arguments = vec!["engine".to_owned(), "--supervised".into()];
        arguments.extend([format!("--name={}", seat.name), format!("--listen={listen}")]);
        arguments.push(format!("--no-engine-auth={}", !self.auth));
        arguments.extend(size.flags());
        arguments.extend(self.mock.as_ref().map(|options| format!("--mock={options}")));
        arguments.extend(["--".to_owned(), self.model.clone()]);
        arguments.into_iter().map(OsString::from).collect()
    }
}
