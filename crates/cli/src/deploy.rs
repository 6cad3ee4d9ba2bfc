//! The common part of `serve` and `router`: runs engines, router and gateway until a signal stops them.

use std::io::{self, Write};
use std::sync::Arc;
use std::time::Duration;

use baton_core::EngineInfo;
use baton_gateway::{Gateway, GatewayConfig};
use baton_launcher::{
    Deployment, Endpoint, Identity, LaunchError, LaunchPlan, Origin, Screen, Shutdown, Stage, connections_within,
    launch, raise_descriptor_limit,
};
use baton_model::{DEFAULT_MODEL, ModelFiles};
use baton_protocol::SessionError;
use baton_router::{Disagg, DispatchConfig, Dispatcher, LeastLoaded, RoundRobin, Strategy};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use crate::api_key;
use crate::banner::Banner;
use crate::card::model_card;
use crate::config::RouterConfig;
use crate::failure::Failure;
use crate::located::Located;
use crate::mock;
use crate::router_options::RouterMode;

/// The longest time between two announcements of an engine that loads; it announces every percent of its weights.
pub(crate) const ENGINE_SILENCE: Duration = Duration::from_secs(300);

/// A deployment before anything is started.
pub(crate) struct Blueprint {
    pub(crate) config: RouterConfig,
    pub(crate) mode: RouterMode,
    pub(crate) files: ModelFiles,
    /// The context length of the engines that will be started here, if any.
    pub(crate) context_tokens: usize,
    pub(crate) engines: LaunchPlan,
    /// What the engines that run already have reported about themselves.
    pub(crate) answers: Vec<(String, EngineInfo)>,
}

/// Runs an asynchronous command on a runtime of its own.
pub(crate) fn block_on(command: impl Future<Output = Result<(), Failure>>) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().map_err(Failure::ours)?;
    let ended = runtime.block_on(command);
    // A tokenizer may still be busy with a long prompt whose client is gone.
    runtime.shutdown_background();
    ended
}

pub(crate) fn open_model(name: &str) -> Result<ModelFiles, Failure> {
    if name == mock::NAME {
        return Ok(open_model(DEFAULT_MODEL)?.renamed(name));
    }
    Located::find(name)?.files()
}

pub(crate) async fn deploy(blueprint: Blueprint, screen: Screen) -> Result<(), Failure> {
    let Blueprint { config, mode, files, context_tokens, engines: plan, answers } = blueprint;
    let shutdown = Shutdown::on_signals().map_err(Failure::ours)?;
    let identity = Identity::of_model(files.name());
    for (engine, info) in &answers {
        identity.check(engine, info).map_err(launch_failure)?;
    }
    let contexts = answers.iter().map(|(_, info)| info.max_context_tokens as usize);
    let card = model_card(&files, contexts.fold(context_tokens, usize::min))?;
    let listener = bind(&config.listen).await?;
    let address = listener.local_addr().map_err(Failure::ours)?;
    let asks_for_key = config.gateway.api_key.is_some();
    if !asks_for_key && !address.ip().to_canonical().is_loopback() {
        screen.print(&format!(
            "warning: everybody who can reach {address} can use this server; --api-key or {} asks for a key\n",
            api_key::ENV
        ));
    }

    let fleet = Arc::new(plan.fleet());
    let strategy = strategy(mode, config.pd_balance_factor);
    let chats = card.template.is_some();
    let dispatcher = Arc::new(Dispatcher::new(Arc::clone(&fleet), Arc::clone(&strategy), DispatchConfig::default()));
    let descriptors = raise_descriptor_limit().map_err(Failure::ours)?;
    let max_connections = config.gateway.max_connections.min(connections_within(descriptors, plan.engines.len()));
    let gateway = GatewayConfig { max_connections, ..config.gateway.clone() };
    let gateway = Arc::new(Gateway::new(card, Arc::clone(&dispatcher), gateway));
    // The gateway already answers /health and /ready while engines load.
    let serving = tokio::spawn(baton_gateway::serve(listener, gateway, draining(&shutdown)));

    let places = places(&plan);
    let deployment = tokio::select! {
        biased;
        () = shutdown.reached(Stage::Draining) => return Ok(()),
        launched = launch(plan, identity, fleet, screen.clone()) => launched.map_err(launch_failure)?,
    };
    let model = files.name().to_owned();
    let engines = dispatcher.fleet_status().into_iter().zip(places).collect();
    announce(&Banner { model, address, engines, router: strategy.name().to_owned(), chats, asks_for_key });
    until_stopped(&config, &shutdown, serving, deployment, &screen).await
}

/// Serves until the first signal, finishes what is open until the second one or the time-out, then ends the engines.
async fn until_stopped(
    config: &RouterConfig,
    shutdown: &Shutdown,
    mut serving: JoinHandle<io::Result<()>>,
    mut deployment: Deployment,
    screen: &Screen,
) -> Result<(), Failure> {
    let timed_out = async {
        shutdown.reached(Stage::Draining).await;
        screen.print("finishing open requests; once more to stop at once\n");
        tokio::time::sleep(config.drain_timeout).await;
    };
    let ended = tokio::select! {
        biased;
        ended = &mut serving => ended,
        () = shutdown.reached(Stage::Stopping) => Ok(Ok(())),
        () = timed_out => {
            screen.print(&format!("requests are still open after {} s: cut off\n", config.drain_timeout.as_secs()));
            Ok(Ok(()))
        }
    };
    tokio::select! {
        biased;
        () = shutdown.reached(Stage::Stopping) => deployment.kill().await,
        () = deployment.stop() => {}
    }
    ended.map_err(Failure::ours)?.map_err(Failure::ours)
}

async fn bind(listen: &Endpoint) -> Result<TcpListener, Failure> {
    TcpListener::bind((listen.host.name(), listen.port)).await.map_err(|error| {
        let failure = Failure::user(format!("cannot listen on {listen}: {error}"));
        match error.kind() {
            io::ErrorKind::AddrInUse => failure.hint("another program has this port; choose one with --port"),
            io::ErrorKind::PermissionDenied => failure.hint("ports below 1024 need privileges; choose --port"),
            io::ErrorKind::AddrNotAvailable => failure.hint("--host must be an address of this machine"),
            _ => failure,
        }
    })
}

fn strategy(mode: RouterMode, pd_balance_factor: f64) -> Arc<dyn Strategy> {
    match mode {
        RouterMode::Disagg => Arc::new(Disagg::new(pd_balance_factor)),
        RouterMode::RoundRobin => Arc::new(RoundRobin::default()),
        RouterMode::LeastLoaded => Arc::new(LeastLoaded),
    }
}

pub(crate) fn launch_failure(error: LaunchError) -> Failure {
    let failure = if error.is_users_fault() { Failure::user(&error) } else { Failure::ours(&error) };
    match error {
        LaunchError::Mismatch { what: "numerics", .. } => {
            failure.hint("start all engines with the same model, --dtype, --kv-dtype and --products")
        }
        LaunchError::Unreachable { .. } => failure.hint("is it running? --connect-timeout looks for it longer"),
        LaunchError::TurnedAway { source: SessionError::Refused(_) | SessionError::Impostor, .. } => {
            failure.hint("engines and routers need the same --secret-file or BATON_SECRET")
        }
        LaunchError::TurnedAway { .. } => failure.hint("is it a Baton engine, of the same version?"),
        _ => failure,
    }
}

fn places(plan: &LaunchPlan) -> Vec<Option<Endpoint>> {
    let place = |origin: &Origin| match origin {
        Origin::Spawned(_) => None,
        Origin::Attached(endpoint) => Some(endpoint.clone()),
    };
    plan.engines.iter().map(|engine| place(&engine.origin)).collect()
}

fn draining(shutdown: &Shutdown) -> impl Future<Output = ()> + use<> {
    let shutdown = shutdown.clone();
    async move { shutdown.reached(Stage::Draining).await }
}

/// Ignores errors: standard output may be closed.
fn announce(banner: &Banner) {
    let mut out = io::stdout();
    let _ = write!(out, "{banner}").and_then(|()| out.flush());
}
