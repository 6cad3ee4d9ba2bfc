//! `baton engine`: runs one engine, for routers that connect to it and callers over HTTP.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use baton_cpu::{CpuBackend, CpuOptions};
use baton_engine::{EngineConfig, EngineHandle, LocalEngine};
use baton_gateway::{EngineFace, GatewayConfig, LazyCard, ModelCard, serve_engine};
use baton_launcher::{
    Announcement, Screen, Shutdown, Stage, connections_within, exit_with_parent, raise_descriptor_limit,
};
use baton_model::DEFAULT_MODEL;
use baton_protocol::Secret;
use tokio::net::TcpListener;

use crate::card::model_card;
use crate::config::{check, engine_size};
use crate::fabric;
use crate::failure::Failure;
use crate::located::Located;
use crate::machine;
use crate::mock;
use crate::options::EngineArgs;
use crate::sizing::Machine;

/// Routers and callers that may be connected at once.
const MAX_CONNECTIONS: usize = 1024;
/// The number of other engines, as senders or receivers of KV, for which descriptors are kept.
const PEERS: usize = 4;
/// How long a drained engine waits for its last replies to reach routers.
const FLUSH: Duration = Duration::from_millis(200);

pub(crate) fn run(args: &EngineArgs, screen: Screen) -> Result<(), Failure> {
    if args.supervised {
        exit_with_parent().map_err(Failure::ours)?;
    }
    check(&args.options)?;
    if let (Some(mock), Some(dialect)) = (&args.mock, args.dialect) {
        return mock::run_dialect(args, mock, dialect, &screen);
    }
    let secret = secret(args, &screen)?;
    let name = args.name.clone();
    let mut announcer = Announcer { supervised: args.supervised, name, screen, percent: None };
    let engine = match (&args.mock, &args.model) {
        (Some(mock), _) => mock::load(args, &secret, mock)?,
        (None, Some(model)) => load(args, &secret, model, &mut announcer)?,
        (None, None) => return Err(Failure::user("no model is named")),
    };
    // One thread is enough for the sockets of sessions; the cores are left to the step loop.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(Failure::ours)?;
    let served = runtime.block_on(serve(args, secret, engine, announcer));
    // A tokenizer may still be busy with a long prompt whose client is gone.
    runtime.shutdown_background();
    served
}

fn load(args: &EngineArgs, secret: &Secret, model: &str, announcer: &mut Announcer) -> Result<EngineHandle, Failure> {
    let located = Located::find(model)?;
    announcer.progress(0.0, "opening the model");
    let model = Arc::new(located.model()?);
    let machine = Machine { cores: baton_cpu::cores(), memory: machine::memory() };
    let size = engine_size(&args.options, &model.spec, machine, 1)?;
    let options = CpuOptions {
        threads: size.threads,
        tp: size.tp,
        dtype: size.dtype.storage(),
        kv_dtype: size.kv_dtype.storage(),
        weights: size.weights.form(),
        products: size.products.products(),
        kv_pages: size.kv_pages,
        max_step_tokens: size.step_tokens,
        max_slots: size.max_slots,
        isa: None,
    };
    let config = EngineConfig {
        model: model.name().to_owned(),
        prefix_cache: size.prefix_cache,
        step_tokens: size.step_tokens,
        max_running: size.max_slots,
        max_waiting: size.max_waiting,
        ..EngineConfig::default()
    };
    let mut backend =
        CpuBackend::load(model, options, &mut |progress| announcer.progress(progress.fraction, "packing weights"))
            .map_err(Failure::user)?;
    if let Some(cpus) = &size.cpus {
        backend.pin(cpus.as_slice()).map_err(Failure::user)?;
    }
    let fabric = fabric::open(args, secret, None)?;
    EngineHandle::spawn(Box::new(backend), config, Some(fabric)).map_err(Failure::ours)
}

async fn serve(
    args: &EngineArgs,
    secret: Secret,
    engine: EngineHandle,
    mut announcer: Announcer,
) -> Result<(), Failure> {
    let address = args.listen();
    let listener = TcpListener::bind(address)
        .await
        .map_err(|error| Failure::user(format!("cannot listen on {address}: {error}")))?;
    let shutdown = Shutdown::on_signals().map_err(Failure::ours)?;
    announcer.listening(&listener).map_err(Failure::ours)?;
    let face = face(args, secret, &engine)?;
    let mut sessions = std::pin::pin!(serve_engine(listener, face, engine.clone()));
    let draining = async {
        shutdown.reached(Stage::Draining).await;
        if args.supervised {
            // Signals to all processes of a deployment are handled by the parent, which drains and then ends this one.
            std::future::pending::<()>().await;
        }
        engine.drain();
        shutdown.reached(Stage::Stopping).await;
        engine.stop();
        std::future::pending::<()>().await;
    };
    let ended = tokio::select! {
        biased;
        ended = engine.ended() => ended,
        () = draining => Ok(()),
        () = &mut sessions => Ok(()),
    };
    let _ = tokio::time::timeout(FLUSH, sessions).await;
    ended.map_err(Failure::ours)
}

fn face(args: &EngineArgs, secret: Secret, engine: &EngineHandle) -> Result<EngineFace, Failure> {
    let model = args.model.as_deref().unwrap_or(DEFAULT_MODEL);
    let (located, info) = (Located::find(model)?, engine.info().clone());
    let descriptors = raise_descriptor_limit().map_err(Failure::ours)?;
    let max_connections = MAX_CONNECTIONS.min(connections_within(descriptors, PEERS));
    let card = move || {
        let files = located.files().map_err(|failure| failure.message)?;
        let card = model_card(&files, info.max_context_tokens as usize).map_err(|failure| failure.message)?;
        // A mock uses the tokenizer of another model.
        Ok(ModelCard { id: info.model.clone(), vocab_size: info.vocab_size, ..card })
    };
    Ok(EngineFace {
        name: args.name.clone(),
        serving: Arc::new(LocalEngine::new(engine.clone())),
        calls: Arc::new(LocalEngine::new(engine.clone())),
        secret,
        config: GatewayConfig { max_connections, ..GatewayConfig::default() },
        card: LazyCard::new(card),
    })
}

/// The secret from the launcher or the user. A fresh one is printed, so that it can be given to routers.
fn secret(args: &EngineArgs, screen: &Screen) -> Result<Secret, Failure> {
    match args.secret.given([args.listen().ip()])? {
        Some(secret) => Ok(secret),
        None if args.supervised => Err(Failure::user(format!("{} is not set", Secret::ENV))),
        None => {
            let secret = Secret::random().map_err(Failure::ours)?;
            screen.print(&format!("routers need {}={}\n", Secret::ENV, secret.reveal()));
            Ok(secret)
        }
    }
}

/// Reports the progress of loading to the launcher or on the terminal.
struct Announcer {
    supervised: bool,
    name: String,
    screen: Screen,
    /// The last percentage that was reported.
    percent: Option<(u32, String)>,
}

impl Announcer {
    fn progress(&mut self, fraction: f32, phase: &str) {
        let now = Some(((fraction * 100.0) as u32, phase.to_owned()));
        if self.percent == now {
            return;
        }
        self.percent = now;
        if self.supervised {
            let announcement = Announcement::Progress { progress: fraction, phase: phase.to_owned() };
            // If the launcher has exited, this process ends because its standard input is closed.
            let _ = announcement.write_to(io::stdout());
        } else {
            self.screen.progress(&self.name, fraction, phase);
        }
    }

    fn listening(&mut self, listener: &TcpListener) -> io::Result<()> {
        let listening = listener.local_addr()?;
        if self.supervised {
            return Announcement::Listening { listening }.write_to(io::stdout());
        }
        self.screen.progress_done(&self.name);
        self.screen.print(&format!("listening on {listening}\n"));
        Ok(())
    }
}
