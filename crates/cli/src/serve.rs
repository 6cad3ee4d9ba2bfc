//! `baton serve`: engines as child processes, a router over them, a gateway in front.

use std::ffi::OsString;
use std::io::{self, Write};
use std::sync::Arc;
use std::time::Duration;

use baton_gateway::{Gateway, GatewayConfig};
use baton_launcher::{Deployment, EnginePlan, LaunchPlan, Screen, Shutdown, Stage, launch};
use baton_model::{ModelFiles, ModelSource};
use baton_router::{Disagg, DispatchConfig, Dispatcher, LeastLoaded, Role, RoundRobin, Router};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use crate::banner::Banner;
use crate::card::model_card;
use crate::config::ServeConfig;
use crate::config_file;
use crate::failure::Failure;
use crate::machine;
use crate::options::{RouterMode, ServeOptions};
use crate::sizing::{EngineSize, Machine};

/// Longest a loading engine may be silent; it announces every percent of its weights.
const ENGINE_SILENCE: Duration = Duration::from_secs(300);

pub(crate) fn run(options: ServeOptions, screen: Screen) -> Result<(), Failure> {
    let file = config_file::read(options.config.as_deref())?;
    let config = ServeConfig::decide(options.or(file))?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().map_err(Failure::ours)?;
    let served = runtime.block_on(serve(config, screen));
    // A tokenizer may still be busy with a long prompt nobody waits for any more.
    runtime.shutdown_background();
    served
}

async fn serve(config: ServeConfig, screen: Screen) -> Result<(), Failure> {
    let shutdown = Shutdown::on_signals().map_err(Failure::ours)?;
    let source = ModelSource::resolve(&config.model).map_err(Failure::user)?;
    let files = ModelFiles::open(&source).map_err(Failure::user)?;
    let decoder = files.decoder().map_err(Failure::user)?;
    let machine = Machine { cores: machine::cores(), memory: machine::memory() };
    let size = config.engine_size(&decoder, machine)?;
    let card = model_card(&files, size.context_tokens(&decoder))?;
    let listener = bind(&config).await?;
    let address = listener.local_addr().map_err(Failure::ours)?;

    let plan = launch_plan(&config, &size)?;
    let fleet = Arc::new(plan.fleet());
    let router = router(&config);
    let (router_name, chats) = (router.name(), card.template.is_some());
    let dispatcher = Arc::new(Dispatcher::new(Arc::clone(&fleet), router, DispatchConfig::default()));
    let gateway = Arc::new(Gateway::new(card, Arc::clone(&dispatcher), GatewayConfig::default()));
    // Answers /health and /ready while engines load.
    let serving = tokio::spawn(baton_gateway::serve(listener, gateway, draining(&shutdown)));

    let deployment = tokio::select! {
        biased;
        () = shutdown.reached(Stage::Draining) => return Ok(()),
        launched = launch(plan, fleet, screen.clone()) => launched.map_err(|error| match error.is_users_fault() {
            true => Failure::user(error),
            false => Failure::ours(error),
        })?,
    };
    let model = files.name().to_owned();
    announce(&Banner { model, address, engines: dispatcher.fleet_status(), router: router_name, chats });
    until_stopped(&config, &shutdown, serving, deployment, &screen).await
}

/// Serves until the first signal, finishes what is open until the second one or the time-out, then ends the engines.
async fn until_stopped(
    config: &ServeConfig,
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

async fn bind(config: &ServeConfig) -> Result<TcpListener, Failure> {
    TcpListener::bind(config.listen).await.map_err(|error| {
        let failure = Failure::user(format!("cannot listen on {}: {error}", config.listen));
        match error.kind() {
            io::ErrorKind::AddrInUse => failure.hint("another program has this port; choose one with --router-port"),
            io::ErrorKind::PermissionDenied => failure.hint("ports below 1024 need privileges; choose --router-port"),
            io::ErrorKind::AddrNotAvailable => failure.hint("--router-host must be an address of this machine"),
            _ => failure,
        }
    })
}

fn launch_plan(config: &ServeConfig, size: &EngineSize) -> Result<LaunchPlan, Failure> {
    let args = |arguments: Vec<String>| arguments.into_iter().map(OsString::from);
    let prefill = (0..config.prefill).map(|index| (Role::Prefill, index));
    let decode = (0..config.decode).map(|index| (Role::Decode, index));
    let engines = prefill.chain(decode).map(|(role, index)| EnginePlan {
        name: format!("{}-{index}", role.name()),
        role,
        args: args(vec!["engine".into(), "--supervised".into(), format!("--name={}-{index}", role.name())])
            .chain(args(size.flags()))
            .chain(args(vec![format!("--no-engine-auth={}", config.secret.is_none())]))
            .chain(args(vec!["--".into(), config.model.clone()]))
            .collect(),
    });
    Ok(LaunchPlan {
        program: std::env::current_exe().map_err(Failure::ours)?,
        engines: engines.collect(),
        secret: config.secret.clone(),
        silence: ENGINE_SILENCE,
    })
}

fn router(config: &ServeConfig) -> Arc<dyn Router> {
    match config.router_mode {
        RouterMode::Disagg => Arc::new(Disagg::new(config.pd_balance_factor)),
        RouterMode::RoundRobin => Arc::new(RoundRobin::default()),
        RouterMode::LeastLoaded => Arc::new(LeastLoaded),
    }
}

fn draining(shutdown: &Shutdown) -> impl Future<Output = ()> + use<> {
    let shutdown = shutdown.clone();
    async move { shutdown.reached(Stage::Draining).await }
}

/// Whoever closed our standard output does not want to read it.
fn announce(banner: &Banner) {
    let mut out = io::stdout();
    let _ = write!(out, "{banner}").and_then(|()| out.flush());
}
