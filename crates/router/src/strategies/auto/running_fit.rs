//! Small models that are learned while serving; the newest observations count most.

/// What each observation leaves of those before it.
const MEMORY: f64 = 0.98;

/// A straight line through what was seen, above zero.
#[derive(Clone, Debug)]
pub(super) struct Line {
    /// Sums over observations, each weighted by its age: 1, x, x², y, xy.
    sums: [f64; 5],
}

/// A mean of the newest values.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Mean {
    value: f64,
    seen: f64,
}

impl Line {
    /// Through two points, which count as one observation each until others have come.
    pub(super) fn through(points: [(f64, f64); 2]) -> Self {
        let mut line = Self { sums: [0.0; 5] };
        points.into_iter().for_each(|(x, y)| line.observe(x, y));
        line
    }

    pub(super) fn observe(&mut self, x: f64, y: f64) {
        for (sum, value) in self.sums.iter_mut().zip([1.0, x, x * x, y, x * y]) {
            *sum = *sum * MEMORY + value;
        }
    }

    /// At 0, and by how much it rises; neither is negative.
    pub(super) fn fit(&self) -> (f64, f64) {
        let [n, x, xx, y, xy] = self.sums;
        let spread = n * xx - x * x;
        let slope = if spread > 1e-9 * xx.max(1.0) { (n * xy - x * y) / spread } else { 0.0 };
        if slope <= 0.0 {
            return ((y / n).max(0.0), 0.0);
        }
        match (y - slope * x) / n {
            start if start >= 0.0 => (start, slope),
            _ => (0.0, (xy / xx).max(0.0)),
        }
    }
}

impl Mean {
    pub(super) fn observe(&mut self, value: f64) {
        self.seen = self.seen * MEMORY + 1.0;
        self.value += (value - self.value) / self.seen;
    }

    /// `unless`: nothing was seen yet.
    pub(super) fn or(&self, unless: f64) -> f64 {
        if self.seen > 0.0 { self.value } else { unless }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_follows_what_is_seen() {
        let close = |(a, b): (f64, f64), (c, d): (f64, f64)| {
            (a - c).abs() < 0.02 * c.abs() + 1e-3 && (b - d).abs() < 0.02 * d.abs() + 1e-3
        };
        for (start, slope) in [(0.5, 2.0), (3.0, 0.0), (0.0, 1.0)] {
            let mut line = Line::through([(0.0, 9.0), (1.0, 20.0)]);
            for at in 0..600 {
                let x = f64::from(at * 37 % 100) / 10.0;
                line.observe(x, start + slope * x);
            }
            assert!(close(line.fit(), (start, slope)), "{:?} for {start} + {slope} x", line.fit());
        }
    }

    #[test]
    fn neither_start_nor_slope_is_below_zero() {
        let mut falling = Line::through([(1.0, 5.0), (2.0, 3.0)]);
        falling.observe(3.0, 1.0);
        let (start, slope) = falling.fit();
        assert!(slope == 0.0 && (start - 3.0).abs() < 0.1, "{start} {slope}");
        let (start, slope) = Line::through([(1.0, 0.0), (2.0, 4.0)]).fit();
        assert!(start == 0.0 && slope > 1.0, "{start} {slope}");
        assert_eq!(Line::through([(5.0, 2.0), (5.0, 2.0)]).fit(), (2.0, 0.0));
    }

    #[test]
    fn a_mean_forgets() {
        let mut mean = Mean::default();
        assert_eq!(mean.or(7.0), 7.0);
        mean.observe(3.0);
        assert_eq!(mean.or(7.0), 3.0);
        (0..400).for_each(|_| mean.observe(10.0));
        assert!((mean.or(0.0) - 10.0).abs() < 0.01);
    }
}
