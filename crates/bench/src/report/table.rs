//! The table at the end: for one run its percentiles, for several a column each and ratios to the first.

use std::fmt::Write as _;

use super::RunFile;
use crate::summary::{Stats, Summary};
use crate::units::{digits, grouped};

/// A latency with its unit in the name.
pub(crate) struct Latency {
    pub(crate) name: &'static str,
    pub(crate) stats: fn(&Summary) -> Option<&Stats>,
}

pub(crate) const LATENCIES: [Latency; 9] = [
    Latency { name: "TTFT", stats: |summary| Some(&summary.ttft_ms) },
    Latency { name: "TPOT", stats: |summary| Some(&summary.tpot_ms) },
    Latency { name: "ITL", stats: |summary| Some(&summary.itl_ms) },
    Latency { name: "E2E", stats: |summary| Some(&summary.e2e_ms) },
    Latency { name: "wait at client", stats: |summary| Some(&summary.client_wait_ms) },
    Latency { name: "queue at server", stats: |summary| summary.server.as_ref().map(|server| &server.queue_ms) },
    Latency { name: "prefill", stats: |summary| summary.server.as_ref().map(|server| &server.prefill_ms) },
    Latency { name: "hand-off", stats: |summary| summary.server.as_ref().map(|server| &server.handoff_ms) },
    Latency { name: "decode", stats: |summary| summary.server.as_ref().map(|server| &server.decode_ms) },
];

/// One number per run, to be compared.
pub(crate) struct Headline {
    pub(crate) name: &'static str,
    pub(crate) value: fn(&RunFile) -> Option<f64>,
    pub(crate) lower_is_better: bool,
}

pub(crate) const HEADLINES: [Headline; 13] = [
    Headline { name: "TTFT p50, ms", value: |run| some(run.summary.ttft_ms.p50), lower_is_better: true },
    Headline { name: "TTFT p99, ms", value: |run| some(run.summary.ttft_ms.p99), lower_is_better: true },
    Headline { name: "TPOT p50, ms", value: |run| some(run.summary.tpot_ms.p50), lower_is_better: true },
    Headline { name: "TPOT p99, ms", value: |run| some(run.summary.tpot_ms.p99), lower_is_better: true },
    Headline { name: "ITL p99, ms", value: |run| some(run.summary.itl_ms.p99), lower_is_better: true },
    Headline { name: "E2E p50, ms", value: |run| some(run.summary.e2e_ms.p50), lower_is_better: true },
    Headline { name: "E2E p99, ms", value: |run| some(run.summary.e2e_ms.p99), lower_is_better: true },
    Headline { name: "requests/s", value: |run| some(run.summary.throughput.requests_per_s), lower_is_better: false },
    Headline {
        name: "input tokens/s",
        value: |run| some(run.summary.throughput.input_tokens_per_s),
        lower_is_better: false,
    },
    Headline {
        name: "output tokens/s",
        value: |run| some(run.summary.throughput.output_tokens_per_s),
        lower_is_better: false,
    },
    Headline {
        name: "met objectives, %",
        value: |run| run.summary.goodput.map(|goodput| goodput.share_met * 100.0),
        lower_is_better: false,
    },
    Headline { name: "CPU per request, ms", value: RunFile::server_cpu_ms_per_request, lower_is_better: true },
    Headline { name: "goodput, requests/s", value: |run| run.goodput_rate, lower_is_better: false },
];

fn some(value: f64) -> Option<f64> {
    (value > 0.0).then_some(value)
}

pub(crate) fn text(runs: &[RunFile]) -> String {
    match runs {
        [run] => single(run),
        runs => comparison(runs),
    }
}

fn single(run: &RunFile) -> String {
    let summary = &run.summary;
    // Writing to a string cannot fail.
    let mut out = format!("\n{}\n", heading(run));
    let columns = ["mean", "p50", "p90", "p95", "p99", "max"];
    let _ = write!(out, "\n{:<16}", "ms");
    for name in columns {
        let _ = write!(out, "{name:>11}");
    }
    out.push('\n');
    for latency in &LATENCIES {
        let Some(stats) = (latency.stats)(summary).filter(|stats| stats.count > 0) else { continue };
        let _ = write!(out, "{:<16}", latency.name);
        for value in [stats.mean, stats.p50, stats.p90, stats.p95, stats.p99, stats.max] {
            let _ = write!(out, "{:>11}", digits(value));
        }
        out.push('\n');
    }
    out.push('\n');
    for (name, value) in facts(run) {
        let _ = writeln!(out, "{name:<16} {value}");
    }
    out
}

pub(crate) fn heading(run: &RunFile) -> String {
    let settings: Vec<_> = run.settings.iter().map(|(_, value)| value.as_str()).take(3).collect();
    format!("{} at {}: {}", run.server.model.as_deref().unwrap_or("model"), run.server.url, settings.join("; "))
}

/// What is no latency, in words.
pub(crate) fn facts(run: &RunFile) -> Vec<(&'static str, String)> {
    let (summary, requests, speed) = (&run.summary, &run.summary.requests, &run.summary.throughput);
    let mut facts = vec![
        (
            "throughput",
            format!(
                "{} requests/s, {} input tokens/s, {} output tokens/s",
                digits(speed.requests_per_s),
                digits(speed.input_tokens_per_s),
                digits(speed.output_tokens_per_s)
            ),
        ),
        (
            "requests",
            format!(
                "{} answered, {} failed, in {} s after the warm-up",
                grouped(requests.completed as f64),
                grouped(requests.failed as f64),
                digits(summary.window_to_s - summary.window_from_s)
            ),
        ),
        ("tokens", tokens(run)),
    ];
    if let Some(goodput) = &summary.goodput {
        let limit = |name: &str, limit: Option<f64>| limit.map(|limit| format!("{name} ≤ {} ms", digits(limit)));
        let limits = [limit("TTFT", goodput.slo.ttft_ms), limit("TPOT", goodput.slo.tpot_ms)];
        let limits: Vec<_> = limits.into_iter().flatten().collect();
        let met = format!(
            "{:.1} % met {}: {} requests/s",
            goodput.share_met * 100.0,
            limits.join(" and "),
            digits(goodput.requests_per_s)
        );
        facts.push(("objectives", met));
        if let Some(rate) = run.goodput_rate {
            let share = format!("{:.0} % meet the objectives", goodput.slo.share * 100.0);
            facts.push(("goodput", format!("{} requests/s is the highest rate at which {share}", digits(rate))));
        }
    }
    facts.extend(summary.errors.iter().map(|error| ("error", format!("{}× {}", error.count, error.example))));
    facts.extend(run.notes.iter().map(|note| ("note", note.clone())));
    facts
}

fn tokens(run: &RunFile) -> String {
    let requests = &run.summary.requests;
    let per_request = |tokens: u64| digits(tokens as f64 / requests.completed.max(1) as f64);
    let cached = if requests.cached_tokens == 0 {
        String::new()
    } else {
        format!(" ({:.0} % from a cache)", 100.0 * requests.cached_tokens as f64 / requests.input_tokens.max(1) as f64)
    };
    let (input, output) = (per_request(requests.input_tokens), per_request(requests.output_tokens));
    format!("{input} in{cached} and {output} out per request; prompts as {}", run.server.prompts)
}

fn comparison(runs: &[RunFile]) -> String {
    let mut out = String::from("\n");
    let width = runs.iter().map(|run| run.label.chars().count()).max().unwrap_or(0).max(10) + 2;
    let _ = write!(out, "{:<20}", "");
    for (at, run) in runs.iter().enumerate() {
        let _ = write!(out, "{:>width$}", run.label);
        if at > 0 {
            let _ = write!(out, "{:>8}", "ratio");
        }
    }
    out.push('\n');
    for headline in &HEADLINES {
        let values: Vec<_> = runs.iter().map(headline.value).collect();
        if values.iter().all(Option::is_none) {
            continue;
        }
        let _ = write!(out, "{:<20}", headline.name);
        for (at, value) in values.iter().enumerate() {
            let _ = write!(out, "{:>width$}", value.map_or("–".into(), digits));
            if at > 0 {
                let _ =
                    write!(out, "{:>8}", ratio(*value, values[0]).map_or("–".into(), |ratio| format!("{ratio:.2}×")));
            }
        }
        out.push('\n');
    }
    for run in runs {
        for error in &run.summary.errors {
            let _ = writeln!(out, "{}: {}× {}", run.label, error.count, error.example);
        }
    }
    out
}

/// To the first run.
pub(crate) fn ratio(value: Option<f64>, first: Option<f64>) -> Option<f64> {
    match (value, first) {
        (Some(value), Some(first)) if first != 0.0 => Some(value / first),
        _ => None,
    }
}
