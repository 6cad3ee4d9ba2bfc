//! Passes over a whole vocabulary: the largest logit, exponentials and their sum.

use super::wide::wide;
use crate::CannotSample;

/// Independent partial results, so that the loops vectorise. Part of the result: the order of the sum depends on it.
const LANES: usize = 16;

wide! {
    /// The largest logit. -∞ is a token that cannot be chosen; there must be one that can, and neither NaN nor +∞.
    pub(super) fn finite_max(logits: &[f32]) -> Result<f32, CannotSample> {
        let mut max = [f32::NEG_INFINITY; LANES];
        let mut good = [1u32; LANES];
        let (chunks, rest) = logits.as_chunks::<LANES>();
        for chunk in chunks {
            for lane in 0..LANES {
                let logit = chunk[lane];
                max[lane] = if logit > max[lane] { logit } else { max[lane] };
                good[lane] &= is_logit(logit);
            }
        }
        for logit in rest {
            max[0] = max[0].max(*logit);
            good[0] &= is_logit(*logit);
        }
        let max = max.into_iter().fold(f32::NEG_INFINITY, f32::max);
        if max == f32::NEG_INFINITY || good.contains(&0) { Err(CannotSample::NotFinite) } else { Ok(max) }
    }
}

/// 0 for NaN and +∞.
#[inline(always)]
fn is_logit(logit: f32) -> u32 {
    u32::from(logit < f32::INFINITY)
}

/// How likely a token is, relative to the most likely one.
#[inline(always)]
pub(super) fn weight(logit: f32, max: f32, temperature: f32) -> f32 {
    exp((logit - max) / temperature)
}

wide! {
    /// The sum of all weights.
    pub(super) fn total_weight(logits: &[f32], max: f32, temperature: f32) -> f64 {
        let mut sums = [0.0f64; LANES];
        let (chunks, rest) = logits.as_chunks::<LANES>();
        for chunk in chunks {
            let mut weights = [0.0; LANES];
            for lane in 0..LANES {
                weights[lane] = weight(chunk[lane], max, temperature);
            }
            for lane in 0..LANES {
                sums[lane] += f64::from(weights[lane]);
            }
        }
        for logit in rest {
            sums[0] += f64::from(weight(*logit, max, temperature));
        }
        sums.into_iter().sum()
    }
}

/// eˣ for x ≤ 0, to about one unit in the last place; 0 where the result would be subnormal. exp(0) is exactly 1.
///
/// Own code, since the system's differs between versions and does not vectorise.
#[inline(always)]
fn exp(x: f32) -> f32 {
    const LEAST: f32 = -87.0;
    // Adding and taking away 1.5 · 2²³ rounds to an integer, which then stands in the low bits.
    const ROUND: f32 = 12_582_912.0;
    // ln 2 in two parts: the product of the first with a small integer is exact.
    const LN2_HIGH: f32 = 0.693_359_4;
    const LN2_LOW: f32 = -2.121_944_4e-4;

    let clamped = if x < LEAST { LEAST } else { x };
    let shifted = clamped * std::f32::consts::LOG2_E + ROUND;
    let power = shifted - ROUND;
    let r = (clamped - power * LN2_HIGH) - power * LN2_LOW;
    // Cephes' expf polynomial on [-ln 2 / 2, ln 2 / 2].
    let mut series = 1.987_569_1e-4;
    for coefficient in [1.398_199_9e-3, 8.333_452e-3, 4.166_579_6e-2, 1.666_666_5e-1, 0.5] {
        series = series * r + coefficient;
    }
    let fraction = series * (r * r) + r + 1.0;
    let exponent = (shifted.to_bits() as i32).wrapping_sub(ROUND.to_bits() as i32);
    let scale = f32::from_bits((exponent.wrapping_add(127) << 23) as u32);
    if x < LEAST { 0.0 } else { fraction * scale }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exp_is_exp() {
        assert_eq!((exp(0.0), exp(-0.0), exp(f32::NEG_INFINITY), exp(-1e30)), (1.0, 1.0, 0.0, 0.0));
        for step in 0..870_000 {
            let x = -(step as f32) * 1e-4;
            let exact = f64::from(x).exp();
            let error = (f64::from(exp(x)) - exact).abs() / exact;
            assert!(error < 1.2e-7, "exp({x}) is off by {error:e}");
        }
    }

    #[test]
    fn totals_do_not_lose_small_weights() {
        let mut logits = vec![-20.0; 150_001];
        logits[77] = 0.0;
        let expected = 1.0 + 150_000.0 * (-20f64).exp();
        assert!((total_weight(&logits, 0.0, 1.0) / expected - 1.0).abs() < 1e-9);
    }

    #[test]
    fn maxima_and_what_is_no_distribution() {
        const INF: f32 = f32::INFINITY;
        for length in [1, 15, 16, 17, 100] {
            for place in [0, length / 2, length - 1] {
                let mut logits = vec![-1.0; length];
                logits[place] = -0.5;
                assert_eq!(finite_max(&logits), Ok(-0.5), "{length} {place}");
                logits[place] = -INF;
                assert_eq!(finite_max(&logits), if length == 1 { Err(CannotSample::NotFinite) } else { Ok(-1.0) });
                for bad in [f32::NAN, INF] {
                    logits[place] = bad;
                    assert_eq!(finite_max(&logits), Err(CannotSample::NotFinite), "{length} {place} {bad}");
                }
            }
        }
        assert_eq!(finite_max(&[]), Err(CannotSample::NotFinite));
        assert_eq!(finite_max(&[-INF, f32::MIN]), Ok(f32::MIN));
    }
}
