//! Numbers of all rounds, and the table that is made of them.

use std::fmt::Write as _;

use serde::{Serialize, Serializer};

use crate::spread::Spread;
use crate::units::digits;

/// One table.
#[derive(Debug, Serialize)]
pub(super) struct Section {
    pub(super) name: &'static str,
    /// What was measured, in one line.
    pub(super) title: String,
    columns: &'static [Column],
    rows: Vec<SectionRow>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Column {
    pub(super) name: &'static str,
    /// Values are hundredths.
    pub(super) percent: bool,
}

#[derive(Debug, Serialize)]
struct SectionRow {
    name: String,
    /// By column, then one for each time that it was measured.
    #[serde(serialize_with = "with_spreads")]
    values: Vec<Vec<f64>>,
    /// What the share is a share of.
    #[serde(skip_serializing_if = "Option::is_none")]
    of: Option<&'static str>,
}

const NAME_CELLS: usize = 32;
const CELLS: usize = 24;

impl Section {
    pub(super) fn new(name: &'static str, title: String, columns: &'static [Column]) -> Self {
        Self { name, title, columns, rows: Vec::new() }
    }

    /// Rows stand in the order in which they are named first; values that are missing stay empty.
    pub(super) fn add(&mut self, name: &str, values: &[Option<f64>]) {
        let columns = self.columns.len();
        let row = self.row(name);
        row.values.resize(columns, Vec::new());
        for (all, value) in row.values.iter_mut().zip(values) {
            all.extend(*value);
        }
    }

    pub(super) fn share_of(&mut self, name: &str, of: &'static str) {
        self.row(name).of = Some(of);
    }

    fn row(&mut self, name: &str) -> &mut SectionRow {
        let at = self.rows.iter().position(|row| row.name == name).unwrap_or_else(|| {
            self.rows.push(SectionRow { name: name.to_owned(), values: Vec::new(), of: None });
            self.rows.len() - 1
        });
        &mut self.rows[at]
    }

    pub(super) fn text(&self) -> String {
        let mut text = format!("{}\n{:NAME_CELLS$}", self.title, "");
        // Writing to a string cannot fail.
        for column in self.columns {
            let _ = write!(text, "{:>CELLS$}", column.name);
        }
        text.push('\n');
        for row in &self.rows {
            let mut line = format!("{:NAME_CELLS$}", row.name);
            for (column, values) in self.columns.iter().zip(&row.values) {
                let cell = Spread::of(values).map_or_else(String::new, |spread| column.cell(&spread));
                let _ = write!(line, "{cell:>CELLS$}");
            }
            if let Some(of) = row.of {
                let _ = write!(line, "  of {of}");
            }
            text += line.trim_end();
            text.push('\n');
        }
        text
    }
}

impl Column {
    pub(super) const fn plain(name: &'static str) -> Self {
        Self { name, percent: false }
    }

    pub(super) const fn percent(name: &'static str) -> Self {
        Self { name, percent: true }
    }

    fn cell(&self, spread: &Spread) -> String {
        let Spread { median, least, most } = *spread;
        match self.percent {
            true => format!("{:.0} % ({:.0} – {:.0})", 100.0 * median, 100.0 * least, 100.0 * most),
            false => format!("{} ({} – {})", digits(median), digits(least), digits(most)),
        }
    }
}

#[derive(Serialize)]
struct Measured<'a> {
    #[serde(flatten)]
    spread: Spread,
    values: &'a [f64],
}

fn with_spreads<S: Serializer>(values: &[Vec<f64>], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(values.iter().map(|values| Spread::of(values).map(|spread| Measured { spread, values })))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn section() -> Section {
        const COLUMNS: &[Column] = &[Column::plain("GB/s"), Column::percent("share")];
        let mut section = Section::new("x", "a title".into(), COLUMNS);
        for round in [2.0, 4.0, 3.0] {
            section.add("ceiling", &[Some(2.0 * round), None]);
            section.add("kernel", &[Some(round), Some(round / 10.0)]);
        }
        section.share_of("kernel", "ceiling");
        section
    }

    #[test]
    fn a_table_has_medians_and_ranges() {
        let text = section().text();
        let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(lines[0], ["a", "title"]);
        assert_eq!(lines[1], ["GB/s", "share"]);
        assert_eq!(lines[2], ["ceiling", "6.00", "(4.00", "–", "8.00)"]);
        assert_eq!(lines[3].join(" "), "kernel 3.00 (2.00 – 4.00) 30 % (20 – 40) of ceiling");
        assert!(text.lines().skip(1).all(|line| line.chars().count() <= 120), "{text}");
    }

    #[test]
    fn the_file_has_all_values() {
        let json = serde_json::to_value(section()).unwrap();
        let kernel = &json["rows"][1];
        assert_eq!(kernel["values"][1]["median"], 0.3);
        assert_eq!(kernel["values"][0]["values"], serde_json::json!([2.0, 4.0, 3.0]));
        assert_eq!((&kernel["of"], &json["rows"][0]["values"][1]), (&"ceiling".into(), &serde_json::Value::Null));
    }
}
