//! What lets holders of the deployment's secret change a router while it serves.

use std::sync::Arc;

use baton_core::ServeError;
use baton_protocol::Secret;
use baton_router::{EngineId, Role};
use futures_util::future::BoxFuture;

/// What makes a gateway answer under `/admin`.
pub struct Admin {
    pub secret: Secret,
    pub membership: Arc<dyn Membership>,
}

/// Adds engines to the router's fleet and takes them out: what launched the others does it.
pub trait Membership: Send + Sync {
    /// Connects to the engine at `address`. It has joined when it can be sent requests.
    fn join(&self, address: String, role: Role) -> BoxFuture<'static, Result<EngineId, ServeError>>;

    /// The engine gets no more requests, and leaves when those it has have ended.
    fn leave(&self, engine: EngineId) -> Result<(), ServeError>;

    /// Where an engine is that was not started here.
    fn address(&self, engine: EngineId) -> Option<String>;
}
