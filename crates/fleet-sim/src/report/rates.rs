//! How strategies fare as the rate grows, where a workload has several: a line for each, in its best layout.

use baton_bench::page::{Axis, Plot, PlotLine, Style, escape};
use baton_router::STRATEGIES;

use super::colour::colour;
use super::measure::{MEASURES, Measure, Value};
use crate::run::Run;
use crate::scenario::{Compared, StrategyResult};
use crate::summary::Summary;

/// Lines run along the upper edge above this many times the best strategy's longest, or nothing would be seen of that one.
const HIGHEST: f64 = 15.0;

pub(super) fn html(scenarios: &[Compared]) -> String {
    let mut html = String::new();
    for of_workload in scenarios.chunk_by(|a, b| a.scenario.name == b.scenario.name) {
        if of_workload.len() < 2 {
            continue;
        }
        let best: Vec<_> = STRATEGIES.iter().filter_map(|kind| best_run(of_workload, kind.name)).collect();
        html += &format!("<h2 class=\"scenario\">{} by rate</h2>\n", escape(&of_workload[0].scenario.name));
        html += "<p>Each strategy with the parameters and layout that have the least mean JCT over all rates. Lines along the upper edge are above it.</p>\n";
        html += "<section class=\"plots\">\n";
        for measure in &MEASURES {
            let plots: Vec<_> = match measure.value {
                Value::Latency(of) => vec![
                    plot(of_workload, &best, measure, ", mean", &|summary| of(summary).mean),
                    plot(of_workload, &best, measure, ", P99", &|summary| of(summary).p99),
                ],
                Value::Amount(of) => vec![plot(of_workload, &best, measure, "", &of)],
            };
            html.extend(plots.iter().map(Plot::html));
        }
        html += "</section>\n";
    }
    html
}

fn best_run<'a>(scenarios: &'a [Compared], strategy: &str) -> Option<&'a Run> {
    let sum =
        |run: &Run| scenarios.iter().map(|compared| of_run(compared, run)).map(|r| r.map_or(0.0, jct)).sum::<f64>();
    let runs = scenarios.first()?.results.iter().map(|result| &result.run);
    runs.filter(|run| run.strategy == strategy).min_by(|a, b| sum(a).total_cmp(&sum(b)))
}

fn jct(result: &StrategyResult) -> f64 {
    result.summary.jct_ms.mean
}

fn of_run<'a>(compared: &'a Compared, run: &Run) -> Option<&'a StrategyResult> {
    compared.results.iter().find(|result| result.run == *run)
}

fn plot(scenarios: &[Compared], runs: &[&Run], measure: &Measure, more: &str, of: &dyn Fn(&Summary) -> f64) -> Plot {
    let lines: Vec<_> = runs
        .iter()
        .map(|run| PlotLine {
            name: run.to_string(),
            colour: colour(&run.strategy),
            style: Style::Line,
            points: scenarios
                .iter()
                .filter_map(|compared| Some((compared.scenario.rate, of(&of_run(compared, run)?.summary))))
                .collect(),
        })
        .collect();
    let most = |line: &PlotLine| line.points.iter().map(|(_, value)| *value).fold(0.0, f64::max);
    let least = lines.iter().map(most).fold(f64::INFINITY, f64::min);
    let highest = lines.iter().map(most).fold(0.0, f64::max).min(least * HIGHEST);
    let rates = || scenarios.iter().map(|compared| compared.scenario.rate);
    let (from, to) = (rates().fold(f64::INFINITY, f64::min), rates().fold(0.0, f64::max));
    Plot {
        id: format!("{}-{}{more}", scenarios[0].scenario.name, measure.name).replace([' ', ','], ""),
        title: format!("{}{more}", measure.about),
        x: Axis::between("rate", "requests/s", from, to),
        y: Axis::linear(measure.name, measure.unit, highest),
        lines,
        marks: Vec::new(),
    }
}
