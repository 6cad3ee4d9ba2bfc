//! The middle of a few rounds, and how far they are apart.

use serde::Serialize;

#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Spread {
    pub(crate) median: f64,
    pub(crate) least: f64,
    pub(crate) most: f64,
}

impl Spread {
    pub(crate) fn of(values: &[f64]) -> Option<Self> {
        let median = median(values.to_vec())?;
        let range = (f64::INFINITY, f64::NEG_INFINITY);
        let (least, most) = values.iter().fold(range, |(least, most), value| (least.min(*value), most.max(*value)));
        Some(Self { median, least, most })
    }
}

pub(crate) fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let (middle, last) = (values.len() / 2, values.len().checked_sub(1)?);
    Some(if last % 2 == 0 { values[middle] } else { (values[middle - 1] + values[middle]) / 2.0 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians() {
        assert_eq!(median(vec![]), None);
        assert_eq!(median(vec![3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(vec![4.0, 1.0, 2.0, 3.0]), Some(2.5));
    }

    #[test]
    fn ranges() {
        assert_eq!(Spread::of(&[]), None);
        assert_eq!(Spread::of(&[2.0, -1.0, 0.5]), Some(Spread { median: 0.5, least: -1.0, most: 2.0 }));
    }
}
