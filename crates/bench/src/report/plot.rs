//! A plot as HTML: an SVG that stretches with its frame, and labels beside it that do not, so that it can be read at any
//! width. All that is seen is there without a script; [`hover.js`] adds values under the pointer.
//!
//! [`hover.js`]: ../../../src/report/hover.js

use std::fmt::Write as _;
use std::ops::Range;

use serde::Serialize;

use super::axis::Axis;

pub struct Plot {
    /// Names the plot in the page.
    pub id: String,
    pub title: String,
    pub x: Axis,
    pub y: Axis,
    pub lines: Vec<PlotLine>,
    /// Values of x with a name: an objective, the end of the warm-up.
    pub marks: Vec<PlotMark>,
}

pub struct PlotLine {
    pub name: String,
    /// Which of the page's colours.
    pub colour: usize,
    pub style: Style,
    pub points: Vec<(f64, f64)>,
}

pub struct PlotMark {
    pub at: f64,
    pub name: String,
}

#[derive(Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Style {
    Line,
    Dots,
}

/// What the script needs to show values.
#[derive(Serialize)]
struct PlotHover<'a> {
    x: HoverAxis<'a>,
    y: HoverAxis<'a>,
    lines: Vec<HoverLine<'a>>,
}

#[derive(Serialize)]
struct HoverAxis<'a> {
    title: &'a str,
    unit: &'a str,
    from: f64,
    to: f64,
    logarithmic: bool,
}

#[derive(Serialize)]
struct HoverLine<'a> {
    name: &'a str,
    colour: usize,
    style: Style,
    points: Vec<[f64; 2]>,
}

/// Coordinates of the SVG go from 0 to this in both directions.
pub(crate) const SIDE: f64 = 1000.0;

/// What a mark's name covers of the plot.
const MARK_WIDTH: f64 = 0.3;
const MARK_HEIGHT: f64 = 0.15;

impl Plot {
    pub fn html(&self) -> String {
        let mut lines = grid(&self.x, &self.y);
        for line in &self.lines {
            let class = if line.style == Style::Dots { "dots" } else { "line" };
            put(&mut lines, format_args!("<path class=\"{class} c{}\" d=\"{}\"/>", line.colour, self.path(line)));
        }
        let mut labels = axis_labels(&self.x, &self.y);
        for mark in &self.marks {
            let at = self.x.at(mark.at);
            let side = if at > 0.6 { "left" } else { "right" };
            let span = if at > 0.6 { at - MARK_WIDTH..at } else { at..at + MARK_WIDTH };
            let edge = if self.is_free_at_the_top(&span) { "high" } else { "low" };
            put(&mut lines, format_args!("<path class=\"mark\" d=\"M{0:.1} 0V{SIDE}\"/>", at * SIDE));
            put(
                &mut labels,
                format_args!(
                    "<span class=\"mark {side} {edge}\" style=\"left:{:.2}%\">{}</span>",
                    at * 100.0,
                    escape(&mark.name)
                ),
            );
        }
        figure(&self.id, &self.title, &self.y, &self.x, &lines, &labels, &self.legend(), &script_json(&self.hover()))
    }

    /// Whether no line passes there below the upper edge.
    fn is_free_at_the_top(&self, span: &Range<f64>) -> bool {
        let is_there = |&(x, y): &(f64, f64)| span.contains(&self.x.at(x)) && self.y.at(y) > 1.0 - MARK_HEIGHT;
        !self.lines.iter().flat_map(|line| &line.points).any(is_there)
    }

    fn path(&self, line: &PlotLine) -> String {
        let mut path = String::new();
        for (i, (x, y)) in line.points.iter().enumerate() {
            let (x, y) = (self.x.at(*x) * SIDE, (1.0 - self.y.at(*y)) * SIDE);
            match line.style {
                // A line of no length with round ends is a dot.
                Style::Dots => put(&mut path, format_args!("M{x:.1} {y:.1}h0")),
                Style::Line => put(&mut path, format_args!("{}{x:.1} {y:.1}", if i == 0 { 'M' } else { 'L' })),
            }
        }
        path
    }

    fn legend(&self) -> String {
        if self.lines.len() < 2 {
            return String::new();
        }
        legend(self.lines.iter().map(|line| (format!("c{}", line.colour), line.name.as_str())))
    }

    fn hover(&self) -> PlotHover<'_> {
        let axis = |axis: &'_ Axis| (axis.from, axis.to, axis.logarithmic);
        let of = |source: &'static str, unit: &'static str, (from, to, logarithmic)| HoverAxis {
            title: source,
            unit,
            from,
            to,
            logarithmic,
        };
        PlotHover {
            x: of(self.x.title, self.x.unit, axis(&self.x)),
            y: of(self.y.title, self.y.unit, axis(&self.y)),
            lines: self
                .lines
                .iter()
                .map(|line| HoverLine {
                    name: &line.name,
                    colour: line.colour,
                    style: line.style,
                    points: line.points.iter().map(|(x, y)| [short(*x), short(*y)]).collect(),
                })
                .collect(),
        }
    }
}

#[allow(clippy::too_many_arguments, reason = "the parts of one piece of HTML, in its order")]
pub(crate) fn figure(
    id: &str,
    title: &str,
    y: &Axis,
    x: &Axis,
    drawing: &str,
    labels: &str,
    legend: &str,
    data: &str,
) -> String {
    format!(
        "<figure class=\"plot\" id=\"{id}\"><figcaption><b>{}</b>{legend}</figcaption>\
         <div class=\"ytitle\">{}</div>\
         <div class=\"area\" tabindex=\"0\"><svg viewBox=\"0 0 {SIDE} {SIDE}\" preserveAspectRatio=\"none\" role=\"img\" \
         aria-label=\"{}\">{drawing}</svg>{labels}<i class=\"cursor\"></i></div>\
         <div class=\"xtitle\">{}</div>\
         <script type=\"application/json\">{data}</script></figure>\n",
        escape(title),
        escape(&with_unit(y)),
        escape(title),
        escape(&with_unit(x)),
    )
}

fn with_unit(axis: &Axis) -> String {
    if axis.unit.is_empty() { axis.title.to_owned() } else { format!("{}, {}", axis.title, axis.unit) }
}

pub(crate) fn grid(x: &Axis, y: &Axis) -> String {
    let mut path = String::new();
    for tick in y.ticks() {
        put(&mut path, format_args!("M0 {:.1}H{SIDE}", (1.0 - tick.at) * SIDE));
    }
    for tick in x.ticks() {
        put(&mut path, format_args!("M{:.1} 0V{SIDE}", tick.at * SIDE));
    }
    format!("<path class=\"grid\" d=\"{path}\"/>")
}

pub(crate) fn axis_labels(x: &Axis, y: &Axis) -> String {
    let mut labels = String::new();
    for (axis, class, edge) in [(x, "x", "left"), (y, "y", "bottom")] {
        for tick in axis.ticks() {
            let minor = if tick.minor { " minor" } else { "" };
            put(
                &mut labels,
                format_args!(
                    "<span class=\"{class}{minor}\" style=\"{edge}:{:.2}%\">{}</span>",
                    tick.at * 100.0,
                    tick.label
                ),
            );
        }
    }
    labels
}

/// Colours by class, with their names.
pub fn legend<'a>(entries: impl Iterator<Item = (String, &'a str)>) -> String {
    let mut html = String::from("<span class=\"legend\">");
    for (class, name) in entries {
        put(&mut html, format_args!("<span><i class=\"{class}\"></i>{}</span>", escape(name)));
    }
    html + "</span>"
}

/// JSON that no `</script>` inside can end.
pub(crate) fn script_json(value: &impl Serialize) -> String {
    // Numbers and strings can always be written.
    serde_json::to_string(value).unwrap_or_default().replace('<', "\\u003c")
}

pub fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// Four digits are more than a screen shows.
pub(crate) fn short(value: f64) -> f64 {
    if value == 0.0 || !value.is_finite() {
        return 0.0;
    }
    let scale = 10f64.powi(3 - value.abs().log10().floor() as i32);
    (value * scale).round() / scale
}

pub(crate) fn put(out: &mut String, text: std::fmt::Arguments<'_>) {
    // Writing to a string cannot fail.
    let _infallible = out.write_fmt(text);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plot(style: Style) -> Plot {
        let line = PlotLine {
            name: "</script>".into(),
            colour: 0,
            style,
            points: vec![(0.0, 0.0), (5.0, 100.0), (10.0, 50.0)],
        };
        Plot {
            id: "p".into(),
            title: "A & B".into(),
            x: Axis::linear("time", "s", 10.0),
            y: Axis::linear("share", "%", 100.0),
            lines: vec![line],
            marks: vec![PlotMark { at: 5.0, name: "limit".into() }],
        }
    }

    #[test]
    fn points_lie_where_they_should() {
        let html = plot(Style::Line).html();
        assert!(html.contains("<path class=\"line c0\" d=\"M0.0 1000.0L500.0 0.0L1000.0 500.0\"/>"), "{html}");
        assert!(plot(Style::Dots).html().contains("M0.0 1000.0h0M500.0 0.0h0M1000.0 500.0h0"));
        assert!(html.contains("<path class=\"mark\" d=\"M500.0 0V1000\"/>"));
        assert!(html.contains("A &amp; B") && html.contains("time, s") && html.contains("share, %"));
        assert_eq!(html.matches("</script>").count(), 1, "names cannot end the script");
    }

    #[test]
    fn names_of_marks_stay_clear_of_lines() {
        let html = |at| Plot { marks: vec![PlotMark { at, name: "limit".into() }], ..plot(Style::Line) }.html();
        assert!(html(0.5).contains("mark right high"));
        assert!(html(4.0).contains("mark right low"), "the line peaks at 5");
        assert!(html(9.5).contains("mark left high"));
    }

    #[test]
    fn four_digits() {
        assert_eq!([short(123_456.0), short(0.012_345_6), short(0.0), short(f64::NAN)], [123_500.0, 0.01235, 0.0, 0.0]);
    }
}
