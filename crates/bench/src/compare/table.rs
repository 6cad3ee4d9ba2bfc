//! Rounds to a table: median and range of each server, and ratios to the first with how sure they are.

use std::fmt::Write as _;

use serde::Serialize;

use super::HEADLINES;
use super::bootstrap::Estimate;
use crate::report::RunFile;
use crate::report::page::{escape, verdict};
use crate::spread::Spread;
use crate::units::digits;

#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct ComparisonRow {
    pub(super) name: &'static str,
    pub(super) lower_is_better: bool,
    pub(super) servers: Vec<Spread>,
    /// Of each server but the first: the median of its rounds' ratios.
    pub(super) ratios: Vec<Option<Estimate>>,
}

/// One row per number that every run has.
pub(super) fn rows(rounds: &[Vec<RunFile>], seed: u64) -> Vec<ComparisonRow> {
    let row = |headline: &crate::report::table::Headline| {
        let values: Vec<Vec<f64>> =
            rounds.iter().map(|runs| runs.iter().map(headline.value).collect::<Option<_>>()).collect::<Option<_>>()?;
        row(headline.name, headline.lower_is_better, &values, seed)
    };
    HEADLINES.iter().filter_map(row).collect()
}

/// `values` by round, then by server.
fn row(name: &'static str, lower_is_better: bool, values: &[Vec<f64>], seed: u64) -> Option<ComparisonRow> {
    let servers = values.first()?.len();
    let of_server = |server: usize| values.iter().map(move |round| round[server]).collect::<Vec<_>>();
    let ratios = (1..servers).map(|server| {
        let ratios: Vec<_> =
            values.iter().filter(|round| round[0] > 0.0).map(|round| round[server] / round[0]).collect();
        Estimate::of(&ratios, seed)
    });
    Some(ComparisonRow {
        name,
        lower_is_better,
        servers: (0..servers).map(|server| Spread::of(&of_server(server))).collect::<Option<_>>()?,
        ratios: ratios.collect(),
    })
}

pub(super) fn text(labels: &[&str], rows: &[ComparisonRow], rounds: usize) -> String {
    let first = labels.first().copied().unwrap_or_default();
    let mut out =
        format!("\n{rounds} rounds: median (range); ratio to {first} within a round (95 % interval)\n\n{:<20}", "");
    // Writing to a string cannot fail.
    for label in labels {
        let _ = write!(out, "{label:>26}");
    }
    for label in &labels[1..] {
        let _ = write!(out, "{:>24}", format!("{label} / {first}"));
    }
    out.push('\n');
    for row in rows {
        let _ = write!(out, "{:<20}", row.name);
        for spread in &row.servers {
            let _ = write!(out, "{:>26}", spread_text(spread));
        }
        for ratio in &row.ratios {
            let _ = write!(out, "{:>24}", ratio.as_ref().map_or("–".into(), ratio_text));
        }
        out.push('\n');
    }
    out
}

fn spread_text(spread: &Spread) -> String {
    format!("{} ({} – {})", digits(spread.median), digits(spread.least), digits(spread.most))
}

fn ratio_text(ratio: &Estimate) -> String {
    format!("{:.3} ({:.3} – {:.3})", ratio.median, ratio.low, ratio.high)
}

pub(super) fn html(labels: &[&str], rows: &[ComparisonRow]) -> String {
    let mut html = String::from("<section class=\"scroll\"><table><tr><th>median (range)</th>");
    let _ = labels.iter().try_for_each(|label| write!(html, "<th>{}</th>", escape(label)));
    let _ = labels[1..].iter().try_for_each(|label| write!(html, "<th>{} / {}</th>", escape(label), escape(labels[0])));
    html += "</tr>";
    for row in rows {
        let _ = write!(html, "<tr><th>{}</th>", row.name);
        for spread in &row.servers {
            let _ = write!(html, "<td>{}</td>", spread_text(spread));
        }
        for ratio in &row.ratios {
            let class = ratio.as_ref().map_or("", |ratio| sure(ratio, row.lower_is_better));
            let _ = write!(html, "<td class=\"ratio {class}\">{}</td>", ratio.as_ref().map_or("–".into(), ratio_text));
        }
        html += "</tr>";
    }
    html + "</table></section>\n"
}

/// Better or worse only where the whole interval is.
fn sure(ratio: &Estimate, lower_is_better: bool) -> &'static str {
    if ratio.low <= 1.0 && 1.0 <= ratio.high { "" } else { verdict(ratio.median, lower_is_better) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_are_taken_within_rounds() {
        // The machine slows down fivefold; B is always twice A.
        let values = [1.0, 2.0, 3.0, 4.0, 5.0].map(|a| vec![a, 2.0 * a]);
        let row = row("x", true, &values, 1).unwrap();
        assert_eq!(row.servers[1], Spread { median: 6.0, least: 2.0, most: 10.0 });
        assert_eq!(row.ratios, [Some(Estimate { median: 2.0, low: 2.0, high: 2.0 })]);
        let text = text(&["A", "B"], &[row], 5);
        assert!(text.contains("6.00 (2.00 – 10.0)") && text.contains("2.000 (2.000 – 2.000)"), "{text}");
    }

    #[test]
    fn only_what_is_sure_is_coloured() {
        let estimate = |low, high| Estimate { median: (low + high) / 2.0, low, high };
        assert_eq!(sure(&estimate(0.8, 1.1), true), "");
        assert_eq!(sure(&estimate(0.8, 0.9), true), "better");
        assert_eq!(sure(&estimate(0.8, 0.9), false), "worse");
    }
}
