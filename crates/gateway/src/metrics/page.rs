//! The page at `/metrics`: the gateway's own numbers, then what every engine last reported.

use std::sync::PoisonError;
use std::sync::atomic::Ordering;

use super::Metrics;
use super::engines::engine_numbers;
use super::text::{Kind, Page};
use crate::gateway::Gateway;

pub(crate) fn page(gateway: &Gateway) -> String {
    let mut page = Page::default();
    gateway_numbers(&mut page, gateway);
    gateway.metrics.write(&mut page);
    engine_numbers(&mut page, &gateway.dispatcher.fleet_status());
    page.into_text()
}

fn gateway_numbers(page: &mut Page, gateway: &Gateway) {
    page.family("baton_info", Kind::Gauge, "What is served; always 1.")
        .sample(&[("model", &gateway.card.id), ("version", env!("CARGO_PKG_VERSION"))], 1);
    page.family("baton_requests_in_flight", Kind::Gauge, "HTTP requests that are being worked on.")
        .sample(&[], gateway.inflight());
    let counters = gateway.dispatcher.counters();
    let mut resumed =
        page.family("baton_resumed_total", Kind::Counter, "Attempts that continued a request, by what ended the last.");
    for (reason, count) in counters.resumed.by_reason() {
        resumed.sample(&[("reason", reason)], count);
    }
    for (name, help, count) in [
        (
            "baton_resumed_numerics_changed_total",
            "Of those: on an engine whose bits may differ.",
            counters.resumed.numerics_changed,
        ),
        ("baton_handoffs_total", "Prompts sent from a prefill to a decode engine.", counters.handoffs),
        ("baton_handoffs_failed_total", "Of those: computed again elsewhere.", counters.handoffs_failed),
        (
            "baton_router_cache_event_gaps_total",
            "Times events of an engine's prefix cache were lost, and a snapshot was requested.",
            counters.cache_event_gaps,
        ),
        (
            "baton_router_cached_tokens_expected_total",
            "Prompt tokens that engines should find in their prefix caches, by the router's knowledge.",
            counters.cached_tokens_expected,
        ),
        (
            "baton_router_cached_tokens_found_total",
            "Prompt tokens that engines then found there.",
            counters.cached_tokens_found,
        ),
    ] {
        page.family(name, Kind::Counter, help).sample(&[], count);
    }
}

impl Metrics {
    fn write(&self, page: &mut Page) {
        let mut http = page.family("baton_http_requests_total", Kind::Counter, "HTTP requests by path and status.");
        for ((path, code), count) in &*self.http.lock().unwrap_or_else(PoisonError::into_inner) {
            http.sample(&[("path", path), ("code", &code.to_string())], count);
        }
        for (name, help, counter) in [
            ("baton_prompt_tokens_total", "Prompt tokens of finished requests.", &self.prompt_tokens),
            ("baton_completion_tokens_total", "Answer tokens of finished requests.", &self.completion_tokens),
        ] {
            page.family(name, Kind::Counter, help).sample(&[], counter.load(Ordering::Relaxed));
        }
        for (name, help, histogram) in [
            ("baton_time_to_first_token_seconds", "From a request's arrival to its first token.", &self.first_token),
            ("baton_inter_token_seconds", "Between two tokens of one choice.", &self.inter_token),
            ("baton_request_seconds", "From a request's arrival to its last token.", &self.whole),
        ] {
            page.histogram(name, help, &histogram.snapshot());
        }
    }
}
