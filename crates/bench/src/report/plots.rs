//! Which plots a page has: distributions of latencies, then what happened over time, a line or a colour per run.

use super::RunFile;
use super::axis::Axis;
use super::plot::{Plot, PlotLine, PlotMark, Style};
use crate::record::Record;
use crate::summary::{Stats, Summary, curve_shares};
use crate::units::ms;

/// More dots are no more to see.
const MOST_DOTS: usize = 2000;

/// As many as can be told apart; then they repeat.
pub(super) const COLOURS: usize = 8;

pub(super) fn plots(runs: &[RunFile]) -> Vec<Plot> {
    let slo = runs.first().and_then(|run| run.summary.goodput).map(|goodput| goodput.slo);
    let mut plots = vec![
        distribution(runs, "ttft", "Time to first token", |summary| &summary.ttft_ms, slo.and_then(|slo| slo.ttft_ms)),
        distribution(
            runs,
            "tpot",
            "Time per output token",
            |summary| &summary.tpot_ms,
            slo.and_then(|slo| slo.tpot_ms),
        ),
        distribution(runs, "itl", "Time between chunks", |summary| &summary.itl_ms, None),
        distribution(runs, "e2e", "End to end", |summary| &summary.e2e_ms, None),
        over_time(runs, "throughput", "Output", "tokens/s", |run| &run.series.output_tokens_per_s),
        over_time(runs, "requests", "Answered", "requests/s", |run| &run.series.requests_per_s),
        over_time(runs, "inflight", "In flight", "requests", |run| &run.series.in_flight),
        scatter(runs),
    ];
    plots.retain(|plot| plot.lines.iter().any(|line| line.points.len() > 1));
    plots
}

fn distribution(
    runs: &[RunFile],
    id: &'static str,
    title: &'static str,
    stats: fn(&Summary) -> &Stats,
    limit: Option<f64>,
) -> Plot {
    let all = || runs.iter().map(|run| stats(&run.summary)).filter(|stats| stats.count > 0);
    let most = all().map(|stats| stats.max.min(3.0 * stats.p99)).fold(limit.unwrap_or(0.0), f64::max);
    // Chunks that arrive together have no time between them, and would stretch the axis for nothing.
    let least = all().map(|stats| stats.min.max(stats.p50 / 20.0)).fold(f64::INFINITY, f64::min);
    let lines = runs.iter().enumerate().map(|(at, run)| PlotLine {
        name: run.label.clone(),
        colour: at % COLOURS,
        style: Style::Line,
        points: stats(&run.summary).curve.iter().copied().zip(curve_shares().map(|share| share * 100.0)).collect(),
    });
    Plot {
        id: id.to_owned(),
        title: title.to_owned(),
        x: Axis::latency("within", least, most),
        y: Axis::exact("share", "%", 100.0),
        lines: lines.collect(),
        marks: limit.into_iter().map(|at| PlotMark { at, name: format!("objective {}", ms(at)) }).collect(),
    }
}

fn over_time(
    runs: &[RunFile],
    id: &'static str,
    title: &'static str,
    unit: &'static str,
    values: fn(&RunFile) -> &Vec<f64>,
) -> Plot {
    let lines: Vec<_> = runs
        .iter()
        .enumerate()
        .map(|(at, run)| PlotLine {
            name: run.label.clone(),
            colour: at % COLOURS,
            style: Style::Line,
            points: values(run)
                .iter()
                .enumerate()
                .map(|(i, value)| ((i as f64 + 0.5) * run.series.step_s, *value))
                .collect(),
        })
        .collect();
    let most = lines.iter().flat_map(|line| &line.points).map(|(_, value)| *value).fold(0.0, f64::max);
    Plot {
        id: id.to_owned(),
        title: title.to_owned(),
        x: time_axis(runs),
        y: Axis::linear(unit, "", most),
        lines,
        marks: warmup_mark(runs),
    }
}

/// Latency by intended time: a server that falls behind draws a rising line.
fn scatter(runs: &[RunFile]) -> Plot {
    let dots = |name: String, colour: usize, run: &RunFile, value: fn(&Record) -> Option<f64>| PlotLine {
        name,
        colour,
        style: Style::Dots,
        points: sample(&run.records)
            .filter_map(|record| Some((record.intended_us as f64 / 1e6, value(record)?)))
            .collect(),
    };
    let e2e = |record: &Record| record.is_complete().then(|| record.e2e_ms());
    let lines: Vec<_> = match runs {
        [run] => vec![dots("end to end".into(), 1, run, e2e), dots("first token".into(), 0, run, Record::ttft_ms)],
        runs => runs
            .iter()
            .enumerate()
            .map(|(at, run)| dots(run.label.clone(), at % COLOURS, run, Record::ttft_ms))
            .collect(),
    };
    let most = lines.iter().flat_map(|line| &line.points).map(|(_, value)| *value).fold(0.0, f64::max);
    let title = if runs.len() == 1 { "Latency by send time" } else { "Time to first token by send time" };
    Plot {
        id: "latency".to_owned(),
        title: title.to_owned(),
        x: time_axis(runs),
        y: Axis::linear("latency", "ms", most),
        lines,
        marks: warmup_mark(runs),
    }
}

fn sample(records: &[Record]) -> impl Iterator<Item = &Record> {
    records.iter().step_by(records.len().div_ceil(MOST_DOTS).max(1))
}

fn time_axis(runs: &[RunFile]) -> Axis {
    let end_s = runs.iter().map(|run| run.series.step_s * run.series.in_flight.len() as f64).fold(0.0, f64::max);
    Axis::exact("time since the run began", "s", end_s)
}

fn warmup_mark(runs: &[RunFile]) -> Vec<PlotMark> {
    let [run] = runs else { return Vec::new() };
    let at = run.summary.window_from_s;
    if at > 0.0 { vec![PlotMark { at, name: "warm-up ends".into() }] } else { Vec::new() }
}
