//! The report as one page that needs nothing else: no network, no libraries, and a policy in its head that ensures this.

use std::path::Path;

use super::RunFile;
use super::document::document;
pub(crate) use super::plot::escape;
use super::plot::{legend, put};
use super::plots::{COLOURS, plots};
use super::table::{HEADLINES, LATENCIES, facts, heading, ratio};
use super::timeline;
use crate::error::BenchError;
use crate::summary::Stats;
use crate::units::{digits, ms};

pub(crate) fn save(path: &Path, runs: &[RunFile]) -> Result<(), BenchError> {
    save_with_table(path, runs, &overview(runs))
}

/// With another table than that of these runs.
pub(crate) fn save_with_table(path: &Path, runs: &[RunFile], table: &str) -> Result<(), BenchError> {
    std::fs::write(path, html(runs, table)).map_err(|error| BenchError::file(path, error))
}

fn overview(runs: &[RunFile]) -> String {
    match runs {
        [run] => {
            let listed = list(facts(run).into_iter());
            format!("{}<section class=\"overview\">{}{listed}</section>\n", tiles(run), latency_table(run))
        }
        runs => comparison_table(runs),
    }
}

fn html(runs: &[RunFile], table: &str) -> String {
    let names: Vec<_> = runs.iter().map(|run| run.label.as_str()).collect();
    let title = names.join(" · ");
    let mut body = format!("<header><h1>{}</h1>", escape(&title));
    for run in runs {
        put(&mut body, format_args!("<p>{}</p>", escape(&heading(run))));
    }
    body += "</header>\n<main>\n";
    body += table;
    body += "<section class=\"plots\">\n";
    for plot in plots(runs) {
        body += &plot.html();
    }
    body += "</section>\n<section class=\"plots wide\">\n";
    for (at, run) in runs.iter().enumerate() {
        let title = if runs.len() == 1 { "Requests".to_owned() } else { format!("Requests: {}", run.label) };
        body += &timeline::html(run, &format!("timeline-{at}"), &title);
    }
    body += "</section>\n";
    body += &settings(runs);
    document(&title, "", &(body + "</main>\n"))
}

fn tiles(run: &RunFile) -> String {
    let summary = &run.summary;
    let latency = |stats: &Stats| (ms(stats.p50), format!("p99 {}", ms(stats.p99)));
    let (ttft, tpot, e2e) = (latency(&summary.ttft_ms), latency(&summary.tpot_ms), latency(&summary.e2e_ms));
    let speed = &summary.throughput;
    let mut tiles = vec![
        ("TTFT p50", ttft.0, ttft.1),
        ("TPOT p50", tpot.0, tpot.1),
        ("E2E p50", e2e.0, e2e.1),
        ("output tokens/s", digits(speed.output_tokens_per_s), format!("input {}", digits(speed.input_tokens_per_s))),
        ("requests/s", digits(speed.requests_per_s), format!("{} failed", summary.requests.failed)),
    ];
    if let Some(goodput) = &summary.goodput {
        let met = format!("{:.1} % met", goodput.share_met * 100.0);
        tiles.push(match run.goodput_rate {
            Some(rate) => ("goodput, requests/s", digits(rate), met),
            None => (
                "met objectives",
                format!("{:.1} %", goodput.share_met * 100.0),
                format!("{} requests/s", digits(goodput.requests_per_s)),
            ),
        });
    }
    let mut html = String::from("<section class=\"tiles\">");
    for (name, value, more) in tiles {
        put(&mut html, format_args!("<div><span>{name}</span><b>{value}</b><small>{more}</small></div>"));
    }
    html + "</section>\n"
}

fn latency_table(run: &RunFile) -> String {
    let mut html = String::from("<div class=\"scroll\"><table><tr><th>ms</th>");
    for name in ["mean", "p50", "p90", "p95", "p99", "max"] {
        put(&mut html, format_args!("<th>{name}</th>"));
    }
    html += "</tr>";
    for latency in &LATENCIES {
        let Some(stats) = (latency.stats)(&run.summary).filter(|stats| stats.count > 0) else { continue };
        put(&mut html, format_args!("<tr><th>{}</th>", latency.name));
        for value in [stats.mean, stats.p50, stats.p90, stats.p95, stats.p99, stats.max] {
            put(&mut html, format_args!("<td>{}</td>", digits(value)));
        }
        html += "</tr>";
    }
    html + "</table></div>"
}

fn comparison_table(runs: &[RunFile]) -> String {
    let mut html = String::from("<section class=\"scroll\"><table><tr><th></th>");
    for (at, run) in runs.iter().enumerate() {
        let span = if at == 0 { "" } else { " colspan=\"2\"" };
        put(
            &mut html,
            format_args!("<th{span}>{}</th>", legend([(format!("c{}", at % COLOURS), run.label.as_str())].into_iter())),
        );
    }
    html += "</tr>";
    for headline in &HEADLINES {
        let values: Vec<_> = runs.iter().map(headline.value).collect();
        if values.iter().all(Option::is_none) {
            continue;
        }
        put(&mut html, format_args!("<tr><th>{}</th>", headline.name));
        for (at, value) in values.iter().enumerate() {
            put(&mut html, format_args!("<td>{}</td>", value.map_or("–".into(), digits)));
            if at > 0 {
                let ratio = ratio(*value, values[0]);
                let class = ratio.map_or("", |ratio| verdict(ratio, headline.lower_is_better));
                put(
                    &mut html,
                    format_args!(
                        "<td class=\"ratio {class}\">{}</td>",
                        ratio.map_or("–".into(), |ratio| format!("{ratio:.2}×"))
                    ),
                );
            }
        }
        html += "</tr>";
    }
    html + "</table></section>\n"
}

/// Within a few percent nothing was seen.
pub fn verdict(ratio: f64, lower_is_better: bool) -> &'static str {
    match ratio {
        0.97..=1.03 => "",
        _ if (ratio < 1.0) == lower_is_better => "better",
        _ => "worse",
    }
}

fn settings(runs: &[RunFile]) -> String {
    let mut html = String::from("<section class=\"settings\">");
    for run in runs {
        let shared = if runs.len() == 1 { Vec::new() } else { facts(run) };
        let server = [
            ("server", run.server.url.clone()),
            ("model", run.server.model.clone().unwrap_or_default()),
            ("route", run.server.route.clone()),
            ("date", utc(run.started_unix_s)),
        ];
        let settings = run.settings.iter().map(|(name, value)| (name.as_str(), value.clone()));
        let all = list(shared.into_iter().chain(settings).chain(server));
        put(&mut html, format_args!("<h2>{}</h2>{all}", escape(&run.label)));
    }
    html + "</section>\n"
}

fn list<'a>(entries: impl Iterator<Item = (&'a str, String)>) -> String {
    let mut html = String::from("<dl>");
    for (name, value) in entries {
        put(&mut html, format_args!("<dt>{}</dt><dd>{}</dd>", escape(name), escape(&value)));
    }
    html + "</dl>"
}

/// `2026-11-15 13:57 UTC`. Days to a date: Hinnant, "chrono-compatible low-level date algorithms".
fn utc(unix_s: u64) -> String {
    let (days, second) = (unix_s / 86_400 + 719_468, unix_s % 86_400);
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    format!("{year}-{month:02}-{day:02} {:02}:{:02} UTC", second / 3600, second / 60 % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates() {
        for (unix_s, text) in [
            (0, "1970-01-01 00:00 UTC"),
            (951_782_400, "2000-02-29 00:00 UTC"),
            (1_794_750_885, "2026-11-15 13:54 UTC"),
        ] {
            assert_eq!(utc(unix_s), text);
        }
    }

    #[test]
    fn which_ratios_are_good_news() {
        for (ratio, lower_is_better, expected) in [
            (0.5, true, "better"),
            (2.0, true, "worse"),
            (2.0, false, "better"),
            (0.5, false, "worse"),
            (1.02, true, ""),
        ] {
            assert_eq!(verdict(ratio, lower_is_better), expected);
        }
    }
}
