//! Random numbers that are a function of a seed and nothing else, on every machine and in every version: a seed in a report
//! must send the same requests next year.

/// SplitMix64 (Steele, Lea, Flood 2014): every state is a good start, so any hash of labels makes an independent stream.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// Different labels, different streams.
    pub fn new(seed: u64, labels: &[u64]) -> Self {
        Self(labels.iter().fold(scramble(seed), |state, label| scramble(state ^ scramble(*label))))
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        scramble(self.0)
    }

    /// In `[0, 1)`.
    pub fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// In `[0, end)`.
    pub fn below(&mut self, end: u32) -> u32 {
        ((u128::from(self.next()) * u128::from(end)) >> 64) as u32
    }

    /// With mean 1.
    pub fn exponential(&mut self) -> f64 {
        -(1.0 - self.unit()).ln()
    }

    /// With mean 0 and deviation 1 (Box and Muller).
    pub(crate) fn normal(&mut self) -> f64 {
        let radius = (2.0 * self.exponential()).sqrt();
        radius * (std::f64::consts::TAU * self.unit()).cos()
    }
}

fn scramble(state: u64) -> u64 {
    let state = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let state = (state ^ (state >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    state ^ (state >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_means_the_same_for_ever() {
        let mut random = Random::new(7, &[1, 2]);
        assert_eq!([random.next(), random.next()], [3_389_594_438_621_782_133, 7_347_964_254_434_503_378]);
        let mut swapped = Random::new(7, &[2, 1]);
        assert_ne!(swapped.next(), Random::new(7, &[1, 2]).next());
    }

    #[test]
    fn moments() {
        let mut random = Random::new(1, &[]);
        let many = 100_000;
        let mean = |draw: &mut dyn FnMut() -> f64| (0..many).map(|_| draw()).sum::<f64>() / f64::from(many);
        assert!((mean(&mut || random.exponential()) - 1.0).abs() < 0.02);
        assert!(mean(&mut || random.normal()).abs() < 0.02);
        assert!((mean(&mut || random.normal().powi(2)) - 1.0).abs() < 0.02);
        assert!((mean(&mut || f64::from(random.below(10))) - 4.5).abs() < 0.05);
    }
}
