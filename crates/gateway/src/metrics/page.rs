//! The page at `/metrics`: the gateway's own numbers, then what every engine last reported.

use std::sync::PoisonError;
use std::sync::atomic::Ordering;

use baton_core::EngineReport;
use baton_router::EngineStatus;

use super::Metrics;
use super::text::{Kind, Page};
use crate::gateway::Gateway;

type Reading = fn(&EngineReport) -> u64;

const ENGINE_GAUGES: [(&str, &str, Reading); 3] = [
    ("baton_requests_running", "Sequences that hold KV pages.", |r| r.load.running.into()),
    ("baton_requests_waiting", "Sequences that wait for KV pages.", |r| r.load.waiting.into()),
    ("baton_pending_prefill_tokens", "Prompt tokens still to be computed.", |r| r.load.pending_prefill_tokens),
];

const ENGINE_COUNTERS: [(&str, &str, Reading); 8] = [
    ("baton_steps_total", "Engine steps.", |r| r.counters.steps),
    ("baton_prefill_tokens_total", "Prompt tokens computed, again after a preemption too.", |r| {
        r.counters.prefill_tokens
    }),
    ("baton_cached_tokens_total", "Prompt tokens taken from the prefix cache.", |r| r.counters.cached_tokens),
    ("baton_generated_tokens_total", "Tokens sampled.", |r| r.counters.generated_tokens),
    ("baton_preemptions_total", "Sequences that lost their KV pages to others.", |r| r.counters.preemptions),
    ("baton_evicted_pages_total", "Pages the prefix cache gave up.", |r| r.counters.evicted_pages),
    ("baton_aborted_total", "Requests given up before their end.", |r| r.counters.aborted),
    ("baton_finished_total", "Requests served to their end.", |r| r.counters.finished),
];

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
    page.family("baton_resumed_total", Kind::Counter, "Attempts that continued a request on another engine.")
        .sample(&[], gateway.dispatcher.resumed_total());
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

fn engine_numbers(page: &mut Page, engines: &[EngineStatus]) {
    let mut up = page.family("baton_engine_up", Kind::Gauge, "1 when the engine can be sent requests.");
    for engine in engines {
        up.sample(&[("engine", &engine.name), ("role", engine.role.name())], u8::from(engine.ready));
    }
    let mut restarts =
        page.family("baton_engine_restarts_total", Kind::Counter, "Times the process was started again.");
    for engine in engines {
        restarts.sample(&[("engine", &engine.name)], engine.restarts);
    }
    let readings = (ENGINE_GAUGES.map(|reading| (Kind::Gauge, reading)).into_iter())
        .chain(ENGINE_COUNTERS.map(|reading| (Kind::Counter, reading)));
    for (kind, (name, help, read)) in readings {
        let mut family = page.family(name, kind, help);
        for engine in engines {
            family.sample(&[("engine", &engine.name)], read(&engine.report));
        }
    }
    let mut busy = page.family("baton_busy_seconds_total", Kind::Counter, "Time spent inside engine steps.");
    for engine in engines {
        busy.sample(&[("engine", &engine.name)], engine.report.counters.busy_us as f64 / 1e6);
    }
    let mut pages = page.family("baton_kv_pages", Kind::Gauge, "KV pages; the states add up to the pool.");
    for engine in engines {
        let load = &engine.report.load;
        let used = load.pages_total.saturating_sub(load.pages_free + load.pages_cached);
        for (state, count) in [("used", used), ("cached", load.pages_cached), ("free", load.pages_free)] {
            pages.sample(&[("engine", &engine.name), ("state", state)], count);
        }
    }
}
