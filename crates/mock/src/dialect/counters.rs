//! Metrics of a dialect's engine as Prometheus text: the gauges that routers read, under the original names, and counters for
//! tests of a router.

use std::sync::atomic::{AtomicU64, Ordering};

use hyper::StatusCode;

use super::config::Dialect;

#[derive(Debug, Default)]
pub(super) struct DialectCounters {
    pub(super) running: AtomicU64,
    pub(super) requests: AtomicU64,
    pub(super) refused_4xx: AtomicU64,
    pub(super) refused_5xx: AtomicU64,
    pub(super) tokens: AtomicU64,
    /// Prompts with KV offered to a decode engine.
    pub(super) kv_offered: AtomicU64,
    pub(super) kv_taken: AtomicU64,
    /// Attempts to fetch KV a second time, or to use a `bootstrap_room` again.
    pub(super) kv_reused: AtomicU64,
    pub(super) kv_expired: AtomicU64,
    pub(super) kv_unknown: AtomicU64,
    /// Attempts to fetch KV with another prompt.
    pub(super) kv_mismatched: AtomicU64,
    /// Requests that did not get their KV.
    pub(super) kv_load_failures: AtomicU64,
}

pub(super) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

impl DialectCounters {
    pub(super) fn refused(&self, status: StatusCode) {
        count(if status.is_client_error() { &self.refused_4xx } else { &self.refused_5xx });
    }

    pub(super) fn prometheus_text(&self, dialect: Dialect) -> String {
        let running = self.running.load(Ordering::Relaxed);
        let mut text = match dialect {
            Dialect::Vllm => {
                gauge("vllm:num_requests_running", running)
                    + &gauge("vllm:num_requests_waiting", 0)
                    + &gauge("vllm:kv_cache_usage_perc", 0)
            }
            Dialect::Sglang => {
                gauge("sglang:num_running_reqs", running)
                    + &gauge("sglang:num_queue_reqs", 0)
                    + &gauge("sglang:token_usage", 0)
            }
        };
        for (name, counter) in [
            ("mock_requests_total", &self.requests),
            ("mock_refused_4xx_total", &self.refused_4xx),
            ("mock_refused_5xx_total", &self.refused_5xx),
            ("mock_tokens_total", &self.tokens),
            ("mock_kv_offered_total", &self.kv_offered),
            ("mock_kv_taken_total", &self.kv_taken),
            ("mock_kv_reused_total", &self.kv_reused),
            ("mock_kv_expired_total", &self.kv_expired),
            ("mock_kv_unknown_total", &self.kv_unknown),
            ("mock_kv_mismatched_total", &self.kv_mismatched),
            ("mock_kv_load_failures_total", &self.kv_load_failures),
        ] {
            let value = counter.load(Ordering::Relaxed);
            text += &format!("# TYPE {name} counter\n{name} {value}\n");
        }
        text
    }
}

fn gauge(name: &str, value: u64) -> String {
    format!("# TYPE {name} gauge\n{name} {value}\n")
}
