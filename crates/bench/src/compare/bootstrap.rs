//! How sure is a median of a few rounds? Rounds are drawn again and again, with replacement, and the middle 95 % of the medians
//! is the answer (Efron 1979).

use crate::random::Random;
use crate::spread::median;

const RESAMPLES: usize = 10_000;

#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub(crate) struct Estimate {
    pub(crate) median: f64,
    /// The 95 % interval.
    pub(crate) low: f64,
    pub(crate) high: f64,
}

impl Estimate {
    pub(crate) fn of(values: &[f64], seed: u64) -> Option<Self> {
        let middle = median(values.to_vec())?;
        let mut random = Random::new(seed, &[0xb007]);
        let draw = |random: &mut Random| values[random.below(values.len() as u32) as usize];
        let mut medians: Vec<_> =
            (0..RESAMPLES).filter_map(|_| median((0..values.len()).map(|_| draw(&mut random)).collect())).collect();
        medians.sort_by(f64::total_cmp);
        let at = |share: f64| medians[((medians.len() - 1) as f64 * share).round() as usize];
        Some(Self { median: middle, low: at(0.025), high: at(0.975) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_hold_the_truth_about_as_often_as_they_say() {
        let mut random = Random::new(5, &[]);
        let hits = (0..200).filter(|trial| {
            let values: Vec<_> = (0..9).map(|_| 1.0 + 0.1 * random.normal()).collect();
            let estimate = Estimate::of(&values, *trial).unwrap();
            assert!(estimate.low <= estimate.median && estimate.median <= estimate.high);
            (estimate.low..=estimate.high).contains(&1.0)
        });
        let hits = hits.count();
        assert!((175..=199).contains(&hits), "{hits} of 200");
    }
}
