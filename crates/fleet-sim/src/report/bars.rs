//! One measure of all strategies of a scenario: a bar to the mean, a thin one on to the 99th percentile.

use std::fmt::Write as _;

use baton_bench::page::{digits, escape};

use super::colour::colour;
use super::measure::{Column, Measure};
use crate::scenario::StrategyResult;

/// Bars of strategies that are overloaded end here, in medians of the column, so that the others are more than dots.
const LONGEST: f64 = 4.0;

// Writing to a string cannot fail.
pub(super) fn html(measure: &Measure, results: &[StrategyResult]) -> String {
    let columns = measure.columns(results);
    let end = columns.iter().map(end).fold(0.0, f64::max).max(1e-9);
    let statistics: Vec<_> = columns.iter().map(|column| column.statistic).filter(|name| !name.is_empty()).collect();
    let statistics = if statistics.is_empty() { String::new() } else { format!(": {}", statistics.join(" and ")) };
    let mut html = format!(
        "<figure class=\"ranking\"><figcaption><b>{}{statistics}</b> <span>{}</span></figcaption>",
        measure.about, measure.unit
    );
    for (at, result) in results.iter().enumerate() {
        let _ = write!(html, "<div class=\"name\">{}</div><div class=\"bar\">", escape(&result.run.to_string()));
        for (column, class) in columns.iter().zip(["first", "second"]).rev() {
            let share = column.values[at] / end;
            let cut = if share > 1.0 { " cut" } else { "" };
            let _ = write!(
                html,
                "<i class=\"{class} c{}{cut}\" style=\"width:{:.1}%\"></i>",
                colour(&result.run.strategy),
                share.min(1.0) * 100.0
            );
        }
        html += "</div><div class=\"value\">";
        for column in &columns {
            let best = if column.is_best(at) { " class=\"best\"" } else { "" };
            let _ = write!(html, "<span{best}>{}</span>", digits(column.values[at]));
        }
        html += "</div>";
    }
    html + "</figure>\n"
}

fn end(column: &Column) -> f64 {
    let mut values = column.values.clone();
    values.sort_by(f64::total_cmp);
    let (Some(most), Some(median)) = (values.last(), values.get(values.len() / 2)) else { return 0.0 };
    most.min(median * LONGEST)
}
