//! Prometheus' text format, version 0.0.4.

use std::fmt::{Display, Write as _};

use super::histogram::{BOUNDS_S, Snapshot};

#[derive(Clone, Copy)]
pub(super) enum Kind {
    Counter,
    Gauge,
}

#[derive(Default)]
pub(super) struct Page(String);

/// The samples of one name, which stand together under their description.
pub(super) struct Family<'a> {
    page: &'a mut Page,
    name: &'a str,
}

impl Page {
    pub(super) fn family<'a>(&'a mut self, name: &'a str, kind: Kind, help: &str) -> Family<'a> {
        let kind = match kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
        };
        self.describe(name, kind, help);
        Family { page: self, name }
    }

    pub(super) fn histogram(&mut self, name: &str, help: &str, snapshot: &Snapshot) {
        self.describe(name, "histogram", help);
        let bounds = BOUNDS_S.iter().map(ToString::to_string).chain(["+Inf".to_owned()]);
        for (bound, count) in bounds.zip(snapshot.cumulative) {
            self.sample(&format!("{name}_bucket"), &[("le", &bound)], count);
        }
        self.sample(&format!("{name}_sum"), &[], snapshot.sum_s);
        self.sample(&format!("{name}_count"), &[], snapshot.cumulative[BOUNDS_S.len()]);
    }

    pub(super) fn into_text(self) -> String {
        self.0
    }

    fn describe(&mut self, name: &str, kind: &str, help: &str) {
        // Writing to a string cannot fail.
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: impl Display) {
        self.0.push_str(name);
        for (at, (label, value)) in labels.iter().enumerate() {
            let opening = if at == 0 { '{' } else { ',' };
            let _ = write!(self.0, "{opening}{label}=\"{}\"", escaped(value));
        }
        let closing = if labels.is_empty() { "" } else { "}" };
        let _ = writeln!(self.0, "{closing} {value}");
    }
}

impl Family<'_> {
    pub(super) fn sample(&mut self, labels: &[(&str, &str)], value: impl Display) -> &mut Self {
        self.page.sample(self.name, labels, value);
        self
    }
}

fn escaped(value: &str) -> String {
    value.replace('\\', r"\\").replace('"', "\\\"").replace('\n', r"\n")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::metrics::histogram::Histogram;

    #[test]
    fn samples_stand_under_their_description() {
        let mut page = Page::default();
        page.family("a_total", Kind::Counter, "As.").sample(&[("x", "q\"\\\n"), ("y", "1")], 2).sample(&[], 0.5);
        page.family("b", Kind::Gauge, "Bs.").sample(&[], 1);
        assert_eq!(
            page.into_text(),
            "# HELP a_total As.\n# TYPE a_total counter\na_total{x=\"q\\\"\\\\\\n\",y=\"1\"} 2\na_total 0.5\n\
             # HELP b Bs.\n# TYPE b gauge\nb 1\n"
        );
    }

    #[test]
    fn histograms_are_cumulative() {
        let histogram = Histogram::default();
        for ms in [1, 2, 2, 200_000] {
            histogram.observe(Duration::from_millis(ms));
        }
        let mut page = Page::default();
        page.histogram("h", "Hs.", &histogram.snapshot());
        let text = page.into_text();
        for line in [
            "h_bucket{le=\"0.0005\"} 0",
            "h_bucket{le=\"0.001\"} 1",
            "h_bucket{le=\"0.0025\"} 3",
            "h_bucket{le=\"120\"} 3",
            "h_bucket{le=\"+Inf\"} 4",
            "h_sum 200.005",
            "h_count 4",
        ] {
            assert!(text.lines().any(|have| have == line), "{line} in\n{text}");
        }
    }
}
