//! Axes: where a value lies between 0 and 1, and which round numbers to write beside it.

use crate::units::grouped;

#[derive(Clone, Debug)]
pub struct Axis {
    pub title: &'static str,
    /// Written after values: `ms`, `%`.
    pub unit: &'static str,
    pub from: f64,
    pub to: f64,
    pub logarithmic: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Tick {
    /// Between 0 and 1.
    pub(crate) at: f64,
    pub(crate) label: String,
    /// Left out beside each other where there is little room.
    pub(crate) minor: bool,
}

/// Labels fit beside each other.
const MOST_TICKS: usize = 7;

impl Axis {
    /// From 0 to a round number at or above `most`.
    pub fn linear(title: &'static str, unit: &'static str, most: f64) -> Self {
        let most = if most > 0.0 { most } else { 1.0 };
        let step = round_step(most);
        Self { title, unit, from: 0.0, to: (most / step - 1e-9).ceil() * step, logarithmic: false }
    }

    /// From 0 to exactly `to`, so that nothing looks empty that is not.
    pub(crate) fn exact(title: &'static str, unit: &'static str, to: f64) -> Self {
        Self { title, unit, from: 0.0, to: if to > 0.0 { to } else { 1.0 }, logarithmic: false }
    }

    /// From the one to the other, neither of which need be round.
    pub fn between(title: &'static str, unit: &'static str, from: f64, to: f64) -> Self {
        Self { title, unit, from, to: if to > from { to } else { from + 1.0 }, logarithmic: false }
    }

    /// Logarithmic where values spread over more than a factor of 30, so that neither end is lost.
    pub(crate) fn latency(title: &'static str, least: f64, most: f64) -> Self {
        if least <= 0.0 || most / least <= 30.0 {
            return Self::linear(title, "ms", most);
        }
        Self { title, unit: "ms", from: least, to: most, logarithmic: true }
    }

    /// Clamped to the axis.
    pub(crate) fn at(&self, value: f64) -> f64 {
        let at = if self.logarithmic {
            (value.max(self.from) / self.from).ln() / (self.to / self.from).ln()
        } else {
            (value - self.from) / (self.to - self.from)
        };
        at.clamp(0.0, 1.0)
    }

    /// Without values: what lies along it is no number.
    pub(crate) fn names_only(title: &'static str) -> Self {
        Self { title, unit: "", from: 0.0, to: 0.0, logarithmic: false }
    }

    pub(crate) fn ticks(&self) -> Vec<Tick> {
        if self.from == self.to {
            return Vec::new();
        }
        let values = if self.logarithmic { self.decades() } else { self.steps() };
        // The last decides how all are written: 0.5, 1.0, 1.5.
        let decimals = values.iter().map(|value| decimals(*value)).max().unwrap_or(0);
        let write = |value: f64| match decimals {
            _ if self.logarithmic => plain(value),
            0 => grouped(value),
            _ => format!("{value:.decimals$}"),
        };
        let every_other = values.len() > 4;
        let ticks = values.iter().enumerate();
        ticks
            .map(|(i, value)| Tick { at: self.at(*value), label: write(*value), minor: every_other && i % 2 == 1 })
            .collect()
    }

    fn steps(&self) -> Vec<f64> {
        let step = round_step(self.to - self.from);
        let first = (self.from / step - 1e-9).ceil();
        (0..).map(|i| (first + f64::from(i)) * step).take_while(|value| *value <= self.to * (1.0 + 1e-9)).collect()
    }

    /// 1, 2 and 5 times powers of ten, or powers alone where those are too many.
    fn decades(&self) -> Vec<f64> {
        let (low, high) = (self.from.log10().floor() as i32, self.to.log10().ceil() as i32);
        let inside = |value: &f64| (self.from..=self.to).contains(value);
        let with = |factors: &[f64]| -> Vec<f64> {
            (low..=high)
                .flat_map(|power| factors.iter().map(move |factor| factor * 10f64.powi(power)))
                .filter(inside)
                .collect()
        };
        let all = with(&[1.0, 2.0, 5.0]);
        if all.len() <= MOST_TICKS { all } else { with(&[1.0]) }
    }
}

/// 1, 2 or 5 times a power of ten, so that `span` has at most [`MOST_TICKS`] of them, both ends counted.
fn round_step(span: f64) -> f64 {
    let rough = span / (MOST_TICKS - 1) as f64;
    let power = 10f64.powf(rough.log10().floor());
    [1.0, 2.0, 5.0, 10.0]
        .map(|factor| factor * power)
        .into_iter()
        .find(|step| *step >= rough * (1.0 - 1e-9))
        .unwrap_or(rough)
}

fn decimals(value: f64) -> usize {
    (0..4).find(|decimals| (value * 10f64.powi(*decimals as i32)).fract().abs() < 1e-6).unwrap_or(4)
}

fn plain(value: f64) -> String {
    if value >= 1.0 { grouped(value) } else { format!("{value}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(axis: &Axis) -> Vec<String> {
        axis.ticks().into_iter().map(|tick| tick.label).collect()
    }

    #[test]
    fn round_numbers() {
        for (most, expected) in [
            (100.0, vec!["0", "20", "40", "60", "80", "100"]),
            (1.7, vec!["0.0", "0.5", "1.0", "1.5", "2.0"]),
            (0.0, vec!["0.0", "0.2", "0.4", "0.6", "0.8", "1.0"]),
            (4321.0, vec!["0", "1,000", "2,000", "3,000", "4,000", "5,000"]),
        ] {
            assert_eq!(labels(&Axis::linear("", "", most)), expected, "{most}");
        }
        assert_eq!(labels(&Axis::exact("", "s", 29.5)), ["0", "5", "10", "15", "20", "25"]);
        assert_eq!(labels(&Axis::between("", "", 4.5, 6.5)), ["4.5", "5.0", "5.5", "6.0", "6.5"]);
        assert_eq!(labels(&Axis::between("", "", 0.7, 3.2)), ["1.0", "1.5", "2.0", "2.5", "3.0"]);
    }

    #[test]
    fn wide_latencies_are_logarithmic() {
        let axis = Axis::latency("", 0.4, 3000.0);
        assert!(axis.logarithmic);
        assert_eq!(labels(&axis), ["1", "10", "100", "1,000"]);
        assert!(
            (axis.at(0.4), axis.at(3000.0)) == (0.0, 1.0) && (0.45..0.47).contains(&axis.at(24.0)),
            "{}",
            axis.at(24.0)
        );
        assert!(!Axis::latency("", 100.0, 900.0).logarithmic);
        assert_eq!(labels(&Axis::latency("", 9.0, 300.0)), ["10", "20", "50", "100", "200"]);
    }
}
