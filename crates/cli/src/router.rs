//! `baton router`: router and gateway in front of engines that run already.

use baton_core::{EngineInfo, Program};
use baton_launcher::{Endpoint, EnginePlan, LaunchPlan, Origin, Screen, query_attached};
use baton_model::{ModelFiles, bundled_names};
use baton_protocol::Secret;

use crate::admin;
use crate::blueprint::{Blueprint, ENGINE_SILENCE, launch_failure, open_model};
use crate::config::RouterConfig;
use crate::deploy::{block_on, deploy, on_signals};
use crate::deployment::Deployment;
use crate::failure::Failure;
use crate::mock;
use crate::router_options::{RouterArgs, RouterCommand};
use crate::secret::{SecretOptions, needs_secret};
use crate::topology::Topology;

pub(crate) fn run(command: RouterCommand, screen: Screen) -> Result<(), Failure> {
    match command.admin {
        Some(change) => admin::run(change),
        None => block_on(route(command.args, screen)),
    }
}

async fn route(args: RouterArgs, screen: Screen) -> Result<(), Failure> {
    let topology = Topology::of_router(&args.engines, args.router.router_mode)?;
    let strategy = topology.mode.strategy(&args.router.parameters)?;
    let config = RouterConfig::decide(args.router)?;
    let endpoints = args.engines.into_iter().map(|engine| engine.endpoint);
    let secret = secret(&args.secret, endpoints.clone())?;
    let engines = topology.engines.into_iter().zip(endpoints).map(|(seat, endpoint)| EnginePlan {
        name: seat.name,
        role: seat.role,
        origin: Origin::Attached(endpoint),
    });
    let plan = LaunchPlan {
        program: Program::this().map_err(Failure::ours)?,
        engines: engines.collect(),
        secret,
        silence: ENGINE_SILENCE,
        patience: config.connect_timeout,
        hang_timeout: config.hang_timeout,
        // A router must be able to start while an engine is down.
        may_be_missing: true,
    };
    let answers = query_attached(&plan, &screen).await.map_err(launch_failure)?;
    let files = model(args.model.as_deref(), &answers)?;
    // Running engines report their own context length.
    let context_tokens = match answers.is_empty() {
        true => files.decoder().map_err(Failure::user)?.max_context,
        false => usize::MAX,
    };
    let blueprint = Blueprint { config, strategy, files, context_tokens, engines: plan, cores: None, answers };
    deploy(Deployment::new(blueprint, on_signals()?, screen)?).await
}

fn secret(options: &SecretOptions, endpoints: impl Iterator<Item = Endpoint> + Clone) -> Result<Secret, Failure> {
    let hosts = endpoints.clone().flat_map(|endpoint| endpoint.host.addresses().unwrap_or_default());
    match options.given(hosts)? {
        Some(secret) => Ok(secret),
        None => Err(needs_secret(endpoints)),
    }
}

/// The model that was named, or the one that engines serve if it is bundled with this binary.
fn model(named: Option<&str>, answers: &[(String, EngineInfo)]) -> Result<ModelFiles, Failure> {
    let served = answers.first().map(|(_, info)| info.model.as_str()).unwrap_or_default();
    match named {
        Some(name) => open_model(name),
        None if served == mock::NAME || bundled_names().any(|bundled| bundled == served) => open_model(served),
        None => {
            let failure = Failure::user(format!("engines serve {served:?}, whose tokenizer is not in this binary"));
            Err(failure.hint("name its directory or GGUF file: baton router path/to/model --engine …"))
        }
    }
}
