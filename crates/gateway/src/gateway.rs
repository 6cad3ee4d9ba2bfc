//! What all requests share.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use baton_router::Dispatcher;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::body::BYTES_PER_BODY_BYTE;
use crate::budget::BodyBudget;
use crate::error::ApiError;
use crate::membership::Admin;
use crate::metrics::Metrics;
use crate::{ApiKey, ModelCard};

const MAX_BODY_BYTES: usize = 32 << 20;

#[derive(Clone, Debug)]
pub struct GatewayConfig {
    /// What clients must send; `None`: everybody who can connect may use it.
    pub api_key: Option<ApiKey>,
    /// Requests that may be open at once; further ones are refused with a time to retry after.
    pub max_inflight: usize,
    /// Clients that may be connected at once. A further one replaces the one that has been idle longest.
    pub max_connections: usize,
    pub max_body_bytes: usize,
    /// Memory that all bodies may take together. A body takes eight times its size at most, and half of this at most.
    pub body_memory_bytes: usize,
    /// For a request's head, and for the next request on a connection that is kept open.
    pub head_timeout: Duration,
    /// For a client that has stopped reading its answer.
    pub stall_timeout: Duration,
}

impl Default for GatewayConfig {
    fn default() -> Self {
        Self {
            api_key: None,
            max_inflight: 1024,
            max_connections: 4096,
            max_body_bytes: MAX_BODY_BYTES,
            // Two of the largest bodies.
            body_memory_bytes: 2 * BYTES_PER_BODY_BYTE * MAX_BODY_BYTES,
            head_timeout: Duration::from_secs(75),
            stall_timeout: Duration::from_secs(60),
        }
    }
}

pub struct Gateway {
    pub(crate) card: ModelCard,
    pub(crate) dispatcher: Arc<Dispatcher>,
    pub(crate) config: GatewayConfig,
    pub(crate) metrics: Metrics,
    pub(crate) started: SystemTime,
    pub(crate) bodies: Arc<BodyBudget>,
    /// `None`: there are no routes under `/admin`.
    pub(crate) admin: Option<Admin>,
    inflight: Arc<Semaphore>,
}

impl Gateway {
    pub fn new(card: ModelCard, dispatcher: Arc<Dispatcher>, config: GatewayConfig) -> Self {
        let inflight = Arc::new(Semaphore::new(config.max_inflight));
        let bodies = BodyBudget::new(config.body_memory_bytes);
        let (metrics, started) = (Metrics::default(), SystemTime::now());
        Self { card, dispatcher, config, metrics, started, bodies, admin: None, inflight }
    }

    /// Holders of the secret may change the router while it serves.
    #[must_use]
    pub fn with_admin(self, admin: Admin) -> Self {
        Self { admin: Some(admin), ..self }
    }

    pub fn card(&self) -> &ModelCard {
        &self.card
    }

    /// A place among the open requests, given back when the permit is dropped.
    pub(crate) fn admit(&self) -> Result<OwnedSemaphorePermit, ApiError> {
        Arc::clone(&self.inflight).try_acquire_owned().map_err(|_| {
            ApiError::busy(format!("{} requests are open already; try again shortly", self.config.max_inflight), 1000)
        })
    }

    /// As configured, or what the memory for bodies allows if that is less.
    pub(crate) fn max_body_bytes(&self) -> usize {
        self.config.max_body_bytes.min(self.bodies.largest_share() / BYTES_PER_BODY_BYTE)
    }

    pub(crate) fn inflight(&self) -> usize {
        self.config.max_inflight - self.inflight.available_permits()
    }

    /// Changes exactly when the same request may get another answer.
    pub(crate) fn fingerprint(&self) -> Option<String> {
        Some(fingerprint(&self.dispatcher.engine_info()?.numerics_id))
    }
}

/// Of all of it: weights come first, and what is done with them last.
fn fingerprint(numerics_id: &str) -> String {
    format!("fp_{}", &blake3::hash(numerics_id.as_bytes()).to_hex()[..12])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_an_id_matters() {
        let same = |a: &str, b: &str| fingerprint(a) == fingerprint(b);
        assert!(same("0123456789abcdef-cpu-bf16", "0123456789abcdef-cpu-bf16"));
        assert!(!same("0123456789abcdef-cpu-bf16", "0123456789abcdef-cpu-bf16-kv-int8"));
    }
}
