//! Other projects' engines, as their routers see them: prefill and decode legs over HTTP, with the timing and the faults of
//! a mock. A request meets the files in this order: [`http`], [`routes`], [`body`] and [`request`], then [`vllm`]
//! or [`sglang`]; tokens leave through [`stream`].

mod body;
mod bootstrap;
mod bounded_map;
mod clock;
mod counters;
mod events;
mod handoffs;
mod http;
mod offers;
mod prompts;
mod request;
mod routes;
mod sessions;
mod sglang;
mod side_channel;
mod stream;
mod vllm;

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

use tokio::net::TcpListener;

use crate::config::MockConfig;
use crate::faults::Faults;
use crate::vocabulary::MockVocabulary;
use bootstrap::RouteCache;
use counters::DialectCounters;
use handoffs::PendingHandOffs;
use side_channel::RemoteEngines;

/// The project whose HTTP protocol is imitated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    Vllm,
    Sglang,
}

/// The leg of a request that an engine serves. Without a role vLLM's serves both legs, SGLang's serves whole requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DialectRole {
    Prefill,
    Decode,
}

pub struct DialectConfig {
    pub dialect: Dialect,
    pub role: Option<DialectRole>,
    /// The model name in requests.
    pub model: String,
    pub mock: MockConfig,
    /// Port of a prefill engine's bootstrap server in SGLang's dialect; 0 takes a free one.
    pub bootstrap_port: u16,
}

/// An engine of another project, listening.
pub struct DialectServer {
    listener: TcpListener,
    side_channel: TcpListener,
    bootstrap: Option<TcpListener>,
    engine: Arc<DialectEngine>,
}

/// State shared by all requests.
pub(crate) struct DialectEngine {
    dialect: Dialect,
    role: Option<DialectRole>,
    model: String,
    config: MockConfig,
    vocabulary: Arc<MockVocabulary>,
    faults: Faults,
    counters: DialectCounters,
    /// Changes with every start, as in vLLM.
    id: String,
    /// Where other mocks fetch KV from this one.
    side_channel: SocketAddr,
    handoffs: PendingHandOffs,
    remote_engines: RemoteEngines,
    routes: RouteCache,
}

impl DialectRole {
    fn name(self) -> &'static str {
        match self {
            Self::Prefill => "prefill",
            Self::Decode => "decode",
        }
    }
}

impl DialectEngine {
    /// The address at which other mocks fetch KV.
    fn side_channel_address(&self) -> SocketAddr {
        let mut address = self.side_channel;
        if address.ip().is_unspecified() {
            address.set_ip(IpAddr::V4(Ipv4Addr::LOCALHOST));
        }
        address
    }
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
            side_channel::serve(side_channel, Arc::clone(&engine)),
            bootstrapping,
        );
    }
}

/// Binds an address and names it in the error: there are several.
async fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let bound = TcpListener::bind(address).await;
    bound.map_err(|error| io::Error::new(error.kind(), format!("cannot listen on {address}: {error}")))
}
