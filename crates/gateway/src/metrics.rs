//! What the server counts, for Prometheus.

mod engines;
mod histogram;
mod page;
mod text;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use axum::http::StatusCode;
use tokio::time::Instant;

use self::histogram::Histogram;
pub(crate) use self::page::page;
use crate::gateway::Gateway;
use crate::usage::Usage;

/// What nginx calls "client closed request".
const HUNG_UP: u16 = 499;

#[derive(Default)]
pub(crate) struct Metrics {
    /// By (path, code).
    http: Mutex<BTreeMap<(&'static str, u16), u64>>,
    first_token: Histogram,
    inter_token: Histogram,
    whole: Histogram,
    prompt_tokens: AtomicU64,
    completion_tokens: AtomicU64,
}

/// An HTTP request that will be counted, also when the client does not wait for the answer.
pub(crate) struct Counted {
    gateway: Arc<Gateway>,
    path: &'static str,
    code: u16,
}

impl Counted {
    pub(crate) fn new(gateway: Arc<Gateway>, path: &'static str) -> Self {
        Self { gateway, path, code: HUNG_UP }
    }

    pub(crate) fn answered(mut self, status: StatusCode) {
        self.code = status.as_u16();
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        let mut http = self.gateway.metrics.http.lock().unwrap_or_else(PoisonError::into_inner);
        *http.entry((self.path, self.code)).or_default() += 1;
    }
}

/// Times one prompt's tokens.
pub(crate) struct Stopwatch {
    gateway: Arc<Gateway>,
    arrived: Instant,
    seen_any: bool,
    /// When each choice's latest token came.
    latest: Vec<Option<Instant>>,
}

impl Stopwatch {
    pub(crate) fn new(gateway: Arc<Gateway>, arrived: Instant, choices: u32) -> Self {
        Self { gateway, arrived, seen_any: false, latest: vec![None; choices as usize] }
    }

    pub(crate) fn token(&mut self, choice: usize) {
        let (metrics, now) = (&self.gateway.metrics, Instant::now());
        if !self.seen_any {
            self.seen_any = true;
            metrics.first_token.observe(now - self.arrived);
        }
        if let Some(before) = self.latest.get_mut(choice).and_then(|latest| latest.replace(now)) {
            metrics.inter_token.observe(now - before);
        }
    }

    pub(crate) fn ended(&self, usage: Usage) {
        let metrics = &self.gateway.metrics;
        metrics.whole.observe(self.arrived.elapsed());
        metrics.prompt_tokens.fetch_add(usage.prompt_tokens, Ordering::Relaxed);
        metrics.completion_tokens.fetch_add(usage.completion_tokens, Ordering::Relaxed);
    }
}
