//! Other projects' engines, as their routers see them: prefill and decode legs over HTTP, with the timing and the faults of
//! a mock. A request meets the files in this order: [`http`], [`routes`], [`body`] and [`request`], then [`vllm`]
//! or [`sglang`]; tokens leave through [`stream`].

mod body;
mod bootstrap;
mod bounded_map;
mod clock;
mod config;
mod counters;
mod engine;
mod error;
mod events;
mod handoffs;
mod http;
mod kv_server;
mod offers;
mod prompts;
mod request;
mod route_cache;
mod routes;
mod sessions;
mod sglang;
mod side_channel;
mod stream;
mod vllm;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use tokio::net::TcpListener;

use crate::faults::Faults;
use crate::vocabulary::MockVocabulary;
pub use config::{Dialect, DialectConfig, DialectRole};
use counters::DialectCounters;
use engine::DialectEngine;
use handoffs::PendingHandOffs;
use route_cache::RouteCache;
use side_channel::RemoteEngines;

/// An engine of another project, listening.
pub struct DialectServer {
    listener: TcpListener,
    side_channel: TcpListener,
    bootstrap: Option<TcpListener>,
    engine: Arc<DialectEngine>,
}

impl DialectServer {
    pub async fn bind(listen: SocketAddr, config: DialectConfig, vocabulary: Arc<MockVocabulary>) -> io::Result<Self> {
        let host = listen.ip();
        let listener = bind(listen).await?;
        let side_channel = bind(SocketAddr::new(host, 0)).await?;
        let needs_bootstrap = config.dialect == Dialect::Sglang && config.role == Some(DialectRole::Prefill);
        let bootstrap = match needs_bootstrap {
            true => Some(bind(SocketAddr::new(host, config.bootstrap_port)).await?),
            false => None,
        };
        let engine = Arc::new(DialectEngine {
            dialect: config.dialect,
            role: config.role,
            model: config.model,
            vocabulary,
            faults: Faults::new(config.mock.faults.clone()),
            counters: DialectCounters::default(),
            id: uuid::Uuid::new_v4().to_string(),
            side_channel: side_channel.local_addr()?,
            handoffs: PendingHandOffs::new(config.mock.shape.handoff_timeout),
            remote_engines: RemoteEngines::default(),
            routes: RouteCache::default(),
            config: config.mock,
        });
        Ok(Self { listener, side_channel, bootstrap, engine })
    }

    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Where decode engines find this one's KV, in the SGLang dialect.
    pub fn bootstrap_address(&self) -> Option<SocketAddr> {
        self.bootstrap.as_ref().and_then(|bootstrap| bootstrap.local_addr().ok())
    }

    /// Serves until the future is dropped.
    pub async fn serve(self) {
        let Self { listener, side_channel, bootstrap, engine } = self;
        let bootstrapping = async {
            match bootstrap {
                Some(listener) => http::serve(listener, Arc::clone(&engine), bootstrap::answer).await,
                None => std::future::pending().await,
            }
        };
        tokio::join!(
            http::serve(listener, Arc::clone(&engine), routes::answer),
            kv_server::serve(side_channel, Arc::clone(&engine)),
            bootstrapping,
        );
    }
}

/// Binds an address and names it in the error: there are several.
async fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let bound = TcpListener::bind(address).await;
    bound.map_err(|error| io::Error::new(error.kind(), format!("cannot listen on {address}: {error}")))
}
