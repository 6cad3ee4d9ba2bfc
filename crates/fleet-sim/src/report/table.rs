//! The comparison in a terminal: a line for each strategy, with a star beside the best of each column.

use std::fmt::Write as _;

use baton_bench::page::digits;

use super::measure::{MEASURES, prediction};
use super::{Against, Comparison, Ratio};
use crate::scenario::Compared;

const WIDTH: usize = 10;

pub(crate) fn text(comparison: &Comparison) -> String {
    let mut out = format!("{}\n", comparison.heading());
    for compared in &comparison.scenarios {
        out += &scenario(compared);
    }
    out
}

// Writing to a string cannot fail.
fn scenario(compared: &Compared) -> String {
    let results = &compared.results;
    let names: Vec<_> = results.iter().map(|result| result.run.to_string()).collect();
    let widest = names.iter().map(|name| name.chars().count()).max().unwrap_or(0);
    let mut out = format!("\n{}\n\n{:widest$}", compared.heading(), "");
    let columns: Vec<_> = MEASURES.iter().map(|measure| (measure, measure.columns(results))).collect();
    for (measure, columns) in &columns {
        let title = format!("{}, {}", measure.name, measure.unit);
        let _ = match columns.len() {
            1 => write!(out, "  {:>WIDTH$} ", measure.name),
            columns => write!(out, "  {title:>width$} ", width = columns * (WIDTH + 2) - 2),
        };
    }
    let predicts = results.iter().any(|result| result.summary.ttft_error.is_some());
    let _ = writeln!(out, "{}", if predicts { "   predicted" } else { "" });
    let _ = write!(out, "{:widest$}", "");
    for (measure, columns) in &columns {
        for column in columns {
            let under = if columns.len() == 1 { measure.unit } else { column.statistic };
            let _ = write!(out, "  {under:>WIDTH$}");
        }
        out.push(' ');
    }
    let _ = writeln!(out, "{}", if predicts { " TTFT off by" } else { "" });
    for (at, (name, result)) in names.iter().zip(results).enumerate() {
        let _ = write!(out, "{name:widest$}");
        for (_, columns) in &columns {
            for column in columns {
                let star = if column.is_best(at) { "*" } else { "" };
                let _ = write!(out, "  {:>WIDTH$}", format!("{}{star}", digits(column.values[at])));
            }
            out.push(' ');
        }
        if predicts {
            let _ = write!(out, "  {:>WIDTH$}", prediction(&result.summary));
        }
        out.truncate(out.trim_end().len());
        out.push('\n');
        if result.summary.failed > 0 {
            let _ = writeln!(out, "{:widest$}  {} requests failed", "", result.summary.failed);
        }
    }
    out.push('\n');
    for Against { adapting, jct } in compared.against_best_fixed() {
        let name = format!("{} on {}", adapting.strategy, adapting.layout);
        let ratios = jct.map(|Ratio { statistic, ratio, to }| format!("{statistic} JCT {ratio:.2} × that of {to}"));
        let _ = writeln!(out, "{name:widest$}  {}", ratios.join(", "));
    }
    out
}
