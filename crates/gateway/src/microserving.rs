//! The face of one engine for callers over plain HTTP: the three calls that routers compose, and OpenAI's routes beside
//! them. Sessions of our own routers come in at the same port.
//!
//! ```text
//!   listener ─┬─ session ───────────────────────────────────────────▶ engine
//!             └─ HTTP ─ auth ─┬─  prep_recv | remote_send | start_generate ─▶ one session of all callers
//!                             └─ /v1/… /metrics …  (a gateway over this one engine)
//! ```

mod audit;
mod auth;
mod call;
mod listener;
mod metadata;
mod names;
mod prep_recv;
mod remote_send;
mod start_generate;

use std::net::IpAddr;
use std::sync::Arc;

use axum::Router;
use axum::http::StatusCode;
use axum::routing::{get, post};
use baton_protocol::{Engine, HostedEngine, Secret};
use baton_router::{DispatchConfig, Dispatcher, Fleet, LeastLoaded, Role};
use tokio::sync::OnceCell;

pub use self::listener::serve_engine;
use self::names::Names;
use crate::error::ApiError;
use crate::fallbacks::with_fallbacks;
use crate::gateway::{Gateway, GatewayConfig};
use crate::{ModelCard, routes, service};

pub struct EngineFace {
    /// In metrics.
    pub name: String,
    /// The session of `/v1`.
    pub serving: Arc<dyn Engine>,
    /// The session of the three calls: another one, so that their requests cannot be mixed up.
    pub calls: Arc<dyn HostedEngine>,
    pub secret: Secret,
    pub config: GatewayConfig,
    pub card: LazyCard,
}

/// Read when the first caller over HTTP connects: an engine whose routers have sessions needs no tokenizer.
pub struct LazyCard {
    load: Arc<dyn Fn() -> Result<ModelCard, String> + Send + Sync>,
    routes: OnceCell<Routes>,
}

/// The same twice: some of them are open to callers on this machine.
struct Routes {
    near: Router,
    far: Router,
}

/// What the three calls share.
struct Calls {
    gateway: Arc<Gateway>,
    engine: Arc<dyn HostedEngine>,
    names: Arc<Names>,
}

impl LazyCard {
    pub fn new(load: impl Fn() -> Result<ModelCard, String> + Send + Sync + 'static) -> Self {
        Self { load: Arc::new(load), routes: OnceCell::new() }
    }

    async fn load(&self) -> Result<ModelCard, String> {
        let load = Arc::clone(&self.load);
        tokio::task::spawn_blocking(move || load()).await.map_err(|error| error.to_string())?
    }
}

impl EngineFace {
    async fn routes(&self, peer: IpAddr) -> Router {
        let near = peer.to_canonical().is_loopback();
        match self.card.routes.get_or_try_init(|| self.make_routes()).await {
            Ok(routes) => if near { &routes.near } else { &routes.far }.clone(),
            Err(reason) => auth::guarded(broken(reason), &self.secret, near),
        }
    }

    async fn make_routes(&self) -> Result<Routes, String> {
        let card = self.card.load().await?;
        let fleet = Fleet::of_ready([(self.name.clone(), Role::Mixed, Arc::clone(&self.serving))]);
        let dispatcher = Dispatcher::new(Arc::new(fleet), Arc::new(LeastLoaded), DispatchConfig::default());
        let gateway = Arc::new(Gateway::new(card, Arc::new(dispatcher), self.config.clone()));
        let calls =
            Arc::new(Calls { gateway: Arc::clone(&gateway), engine: Arc::clone(&self.calls), names: Arc::default() });
        let all = with_fallbacks(routes::openai(&gateway).merge(microserving(calls)));
        let guarded = |near| routes::counted(auth::guarded(all.clone(), &self.secret, near), Arc::clone(&gateway));
        Ok(Routes { near: guarded(true), far: guarded(false) })
    }
}

fn microserving(calls: Arc<Calls>) -> Router {
    Router::new()
        .route("/microserving/prep_recv", post(prep_recv::prep_recv))
        .route("/microserving/remote_send", post(remote_send::remote_send))
        .route("/microserving/start_generate", post(start_generate::start_generate))
        .route("/debug/audit", get(audit::audit))
        .with_state(calls)
}

/// Sessions work all the same.
fn broken(reason: String) -> Router {
    let message = format!("this engine cannot serve HTTP, because its model has no usable tokenizer: {reason}");
    let error = ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, message);
    Router::new().route("/health", get(service::health)).fallback(async move || error)
}
