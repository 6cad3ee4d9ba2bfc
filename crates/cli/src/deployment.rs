//! Engines, router and gateway as one thing, brought up stage by stage and ended together.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use baton_gateway::{Admin, Gateway, GatewayConfig, Membership};
use baton_launcher::{
    Endpoint, EnginePlan, Identity, LaunchPlan, Screen, Shutdown, Stage, connections_within, launch,
    raise_descriptor_limit,
};
use baton_protocol::Secret;
use baton_router::{DispatchConfig, Dispatcher, EngineId, EngineStatus, Fleet};
use baton_text::Tokenizer;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use crate::api_key;
use crate::banner::Banner;
use crate::blueprint::{Blueprint, launch_failure};
use crate::card::model_card;
use crate::config::RouterConfig;
use crate::core_claims::CoreClaims;
use crate::failure::Failure;
use crate::joining::Joining;

/// Dropping it kills the engines that it started.
pub struct Deployment {
    model: String,
    secret: Secret,
    config: RouterConfig,
    fleet: Arc<Fleet>,
    dispatcher: Arc<Dispatcher>,
    gateway: Arc<Gateway>,
    joining: Arc<Joining>,
    screen: Screen,
    shutdown: Shutdown,
    /// Until it is launched.
    plan: Option<(LaunchPlan, Identity)>,
    engines: Option<baton_launcher::Deployment>,
    serving: Option<JoinHandle<io::Result<()>>>,
    /// Other deployments on this machine choose different ones for as long as these engines run.
    _cores: Option<CoreClaims>,
}

impl Deployment {
    /// Nothing is started yet. Reaching a stage of `shutdown` ends all of it.
    pub(crate) fn new(blueprint: Blueprint, shutdown: Shutdown, screen: Screen) -> Result<Self, Failure> {
        let Blueprint { config, strategy, files, context_tokens, engines: plan, cores, answers } = blueprint;
        let identity = Identity::of_model(files.name());
        for (engine, info) in &answers {
            identity.check(engine, info).map_err(launch_failure)?;
        }
        let contexts = answers.iter().map(|(_, info)| info.max_context_tokens as usize);
        let card = model_card(&files, contexts.fold(context_tokens, usize::min))?;
        let fleet = Arc::new(plan.fleet());
        let dispatcher = Arc::new(Dispatcher::new(Arc::clone(&fleet), strategy, DispatchConfig::default()));
        let descriptors = raise_descriptor_limit().map_err(Failure::ours)?;
        let max_connections = config.gateway.max_connections.min(connections_within(descriptors, plan.engines.len()));
        let gateway = GatewayConfig { max_connections, ..config.gateway.clone() };
        let joining = Arc::new(Joining::default());
        let admin = Admin { secret: plan.secret.clone(), membership: Arc::clone(&joining) as _ };
        let identity = identity.with_context(card.max_context_tokens);
        let gateway = Arc::new(Gateway::new(card, Arc::clone(&dispatcher), gateway).with_admin(admin));
        Ok(Self {
            model: files.name().to_owned(),
            secret: plan.secret.clone(),
            config,
            fleet,
            dispatcher,
            gateway,
            joining,
            screen,
            shutdown,
            plan: Some((plan, identity)),
            engines: None,
            serving: None,
            _cores: cores,
        })
    }

    /// Answers clients from now on: /health and /ready at once, requests as soon as an engine is ready.
    pub async fn listen(&mut self) -> Result<SocketAddr, Failure> {
        let listener = bind(&self.config.listen).await?;
        let address = listener.local_addr().map_err(Failure::ours)?;
        if self.config.gateway.api_key.is_none() && !address.ip().to_canonical().is_loopback() {
            self.screen.print(&format!(
                "warning: everybody who can reach {address} can use this server; --api-key or {} asks for a key\n",
                api_key::ENV
            ));
        }
        let shutdown = self.shutdown.clone();
        let draining = async move { shutdown.reached(Stage::Draining).await };
        self.serving = Some(tokio::spawn(baton_gateway::serve(listener, Arc::clone(&self.gateway), draining)));
        Ok(address)
    }

    /// The same at another address than the options say.
    pub async fn listen_at(&mut self, endpoint: Endpoint) -> Result<SocketAddr, Failure> {
        self.config.listen = endpoint;
        self.listen().await
    }

    /// Starts and attaches all engines, and returns when each has generated a token. `false` when a shutdown came before.
    pub async fn launch(&mut self) -> Result<bool, Failure> {
        let Some((plan, identity)) = self.plan.take() else { return Ok(self.engines.is_some()) };
        let launched = launch(plan, identity, Arc::clone(&self.fleet), self.screen.clone());
        self.engines = tokio::select! {
            biased;
            () = self.shutdown.reached(Stage::Draining) => None,
            launched = launched => Some(launched.map_err(launch_failure)?),
        };
        if let Some(engines) = &self.engines {
            self.joining.open(engines.control().clone());
        }
        Ok(self.engines.is_some())
    }

    /// Serves until a shutdown begins, finishes what is open until it is to stop at once or the time is out, then ends the engines.
    pub async fn until_stopped(mut self) -> Result<(), Failure> {
        let served = self.until_served().await;
        if let Some(mut engines) = self.engines.take() {
            tokio::select! {
                biased;
                () = self.shutdown.reached(Stage::Stopping) => engines.kill().await,
                () = engines.stop() => {}
            }
        }
        served
    }

    async fn until_served(&mut self) -> Result<(), Failure> {
        let listens = self.serving.is_some();
        let timed_out = async {
            self.shutdown.reached(Stage::Draining).await;
            if listens {
                self.screen.print("finishing open requests; once more to stop at once\n");
                tokio::time::sleep(self.config.drain_timeout).await;
            }
        };
        let serving = async {
            match &mut self.serving {
                Some(serving) => serving.await.map_err(Failure::ours)?.map_err(Failure::ours),
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            ended = serving => return ended,
            () = self.shutdown.reached(Stage::Stopping) => return Ok(()),
            () = timed_out => {}
        }
        if listens {
            let limit = self.config.drain_timeout.as_secs();
            self.screen.print(&format!("requests are still open after {limit} s: cut off\n"));
        }
        Ok(())
    }

    pub fn fleet(&self) -> &Arc<Fleet> {
        &self.fleet
    }

    /// How engines join and leave once it is launched.
    pub fn membership(&self) -> Arc<dyn Membership> {
        Arc::clone(&self.joining) as _
    }

    pub fn dispatcher(&self) -> &Arc<Dispatcher> {
        &self.dispatcher
    }

    pub fn tokenizer(&self) -> &Arc<Tokenizer> {
        &self.gateway.card().tokenizer
    }

    /// What engines want to see before they obey.
    pub fn secret(&self) -> &Secret {
        &self.secret
    }

    /// All engines, with the endpoint of each that was given one.
    pub fn engines(&self) -> Vec<(EngineStatus, Option<Endpoint>)> {
        let engines = self.dispatcher.fleet_status().into_iter();
        let placed = engines.map(|engine| {
            let endpoint = self.endpoint(engine.id);
            (engine, endpoint)
        });
        placed.collect()
    }

    fn endpoint(&self, id: EngineId) -> Option<Endpoint> {
        if let Some(engines) = &self.engines {
            return engines.control().endpoint(id);
        }
        let (plan, _) = self.plan.as_ref()?;
        plan.engines.get(id.0).and_then(EnginePlan::endpoint).cloned()
    }

    pub(crate) fn banner(&self, address: SocketAddr) -> Banner {
        Banner {
            model: self.model.clone(),
            address,
            engines: self.engines(),
            router: self.dispatcher.strategy().name().to_owned(),
            chats: self.gateway.card().template.is_some(),
            asks_for_key: self.config.gateway.api_key.is_some(),
        }
    }
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
