//! The comparison as one page that needs nothing else.

use std::fmt::Write as _;
use std::path::Path;

use baton_bench::page::{digits, document, escape, legend, verdict};
use baton_router::STRATEGIES;

use super::bars;
use super::colour::colour;
use super::measure::{MEASURES, prediction};
use super::rates;
use super::{Against, Comparison, Ratio};
use crate::error::SimulateError;
use crate::scenario::Compared;

const STYLE: &str = include_str!("page.css");

pub(crate) fn save(path: &Path, comparison: &Comparison) -> Result<(), SimulateError> {
    std::fs::write(path, html(comparison)).map_err(|error| SimulateError::file(path, error))
}

// Writing to a string cannot fail.
fn html(comparison: &Comparison) -> String {
    let mut body =
        format!("<header><h1>Strategies, simulated</h1><p>{}</p></header>\n<main>\n", escape(&comparison.heading()));
    body += &rates::html(&comparison.scenarios);
    for compared in &comparison.scenarios {
        let _ = writeln!(body, "<h2 class=\"scenario\">{}</h2>", escape(&compared.heading()));
        body += &verdicts(compared);
        let kinds =
            STRATEGIES.iter().filter(|kind| compared.results.iter().any(|result| result.run.strategy == kind.name));
        let _ = write!(body, "<p>{}</p>", legend(kinds.map(|kind| (format!("c{}", colour(kind.name)), kind.name))));
        body += "<section class=\"plots bars\">\n";
        for measure in &MEASURES {
            body += &bars::html(measure, &compared.results);
        }
        body += "</section>\n";
        body += &table(compared);
    }
    document("Strategies, simulated", STYLE, &(body + "</main>\n"))
}

fn verdicts(compared: &Compared) -> String {
    let mut html = String::from("<ul>");
    for Against { adapting, jct } in compared.against_best_fixed() {
        let ratios = jct.map(|Ratio { statistic, ratio, to }| {
            let class = verdict(ratio, true);
            format!("{statistic} JCT <b class=\"ratio {class}\">{ratio:.2}×</b> that of {}", escape(&to.to_string()))
        });
        let (strategy, layout) = (escape(&adapting.strategy), escape(&adapting.layout.to_string()));
        let _ = write!(html, "<li>{strategy} on {layout}: {}</li>", ratios.join(", "));
    }
    html + "</ul>\n"
}

fn table(compared: &Compared) -> String {
    let mut html = String::from("<details><summary>All figures</summary><div class=\"scroll\"><table><tr><th></th>");
    let columns: Vec<_> = MEASURES.iter().map(|measure| (measure, measure.columns(&compared.results))).collect();
    for (measure, columns) in &columns {
        for column in columns {
            let _ = write!(html, "<th>{} {}, {}</th>", measure.name, column.statistic, measure.unit);
        }
    }
    html += "<th>predicted TTFT off by</th></tr>";
    for (at, result) in compared.results.iter().enumerate() {
        let _ = write!(html, "<tr><th>{}</th>", escape(&result.run.to_string()));
        for column in columns.iter().flat_map(|(_, columns)| columns) {
            let best = if column.is_best(at) { " class=\"best\"" } else { "" };
            let _ = write!(html, "<td{best}>{}</td>", digits(column.values[at]));
        }
        let _ = write!(html, "<td>{}</td></tr>", prediction(&result.summary));
    }
    html + "</table></div></details>\n"
}
