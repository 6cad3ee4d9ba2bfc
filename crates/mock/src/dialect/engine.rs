//! The state that all requests of an engine share.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::config::{Dialect, DialectRole};
use super::counters::{DialectCounters, count};
use super::handoffs::PendingHandOffs;
use super::route_cache::RouteCache;
use super::side_channel::RemoteEngines;
use crate::config::MockConfig;
use crate::faults::Faults;
use crate::vocabulary::MockVocabulary;

pub(super) struct DialectEngine {
    pub(super) dialect: Dialect,
    pub(super) role: Option<DialectRole>,
    pub(super) model: String,
    pub(super) config: MockConfig,
    pub(super) vocabulary: Arc<MockVocabulary>,
    pub(super) faults: Faults,
    pub(super) counters: DialectCounters,
    /// Changes with every start, as in vLLM.
    pub(super) id: String,
    /// Where other mocks fetch KV from this one.
    pub(super) side_channel: SocketAddr,
    pub(super) handoffs: PendingHandOffs,
    pub(super) remote_engines: RemoteEngines,
    pub(super) routes: RouteCache,
}

impl DialectEngine {
    /// The address at which other mocks fetch KV.
    pub(super) fn side_channel_address(&self) -> SocketAddr {
        let mut address = self.side_channel;
        if address.ip().is_unspecified() {
            address.set_ip(IpAddr::V4(Ipv4Addr::LOCALHOST));
        }
        address
    }

    /// Simulated compute time of all prompts.
    pub(super) fn prefill_time(&self, prompt_tokens: usize) -> Duration {
        let speed = &self.config.speed;
        speed.prefill + speed.prefill_per_token * prompt_tokens as u32
    }

    pub(super) fn transfer_time(&self, tokens: usize) -> Duration {
        self.config.speed.transfer_per_token * tokens as u32
    }
}

/// Counts a request as running until it is dropped.
pub(super) struct RunningGuard(Arc<DialectEngine>);

impl RunningGuard {
    pub(super) fn new(engine: &Arc<DialectEngine>) -> Self {
        engine.counters.running.fetch_add(1, Ordering::Relaxed);
        count(&engine.counters.requests);
        Self(Arc::clone(engine))
    }
}

impl Drop for RunningGuard {
    fn drop(&mut self) {
        self.0.counters.running.fetch_sub(1, Ordering::Relaxed);
    }
}
