//! Rotary position embedding: dimension j of a head is rotated with dimension j + head_dim/2, as in Hugging Face models.

use std::f64::consts::PI;

use baton_model::{RopeScaling, RopeSpec};

use crate::simd::vector::{LANES, Lanes};

/// Cosines and sines of every position.
pub(crate) struct RopeTable {
    half: usize,
    cos: Vec<f32>,
    sin: Vec<f32>,
}

impl RopeTable {
    pub(crate) fn new(rope: &RopeSpec, head_dim: usize, positions: usize) -> Self {
        let frequencies: Vec<f32> = (0..head_dim / 2).map(|i| frequency(rope, i, head_dim)).collect();
        let mut table = Self { half: head_dim / 2, cos: Vec::new(), sin: Vec::new() };
        for position in 0..positions {
            for &frequency in &frequencies {
                // The angle is rounded to f32 first, as in the models' training.
                let angle = f64::from(position as f32 * frequency);
                table.cos.push(angle.cos() as f32);
                table.sin.push(angle.sin() as f32);
            }
        }
        table
    }

    /// Whether each half of a head is a whole number of vectors.
    pub(crate) fn is_whole(&self) -> bool {
        self.half.is_multiple_of(LANES)
    }

    /// Cosines and sines of one position.
    #[inline(always)]
    pub(crate) fn at(&self, position: usize) -> (&[f32], &[f32]) {
        let row = position * self.half..(position + 1) * self.half;
        (&self.cos[row.clone()], &self.sin[row])
    }

    /// `turned` = `head` rotated by its position.
    #[inline(always)]
    pub(crate) fn rotate<L: Lanes>(&self, position: usize, head: &[f32], turned: &mut [f32]) {
        let (half, (cos, sin)) = (self.half, self.at(position));
        let (turned_low, turned_high) = turned[..2 * half].split_at_mut(half);
        let whole = half / LANES * LANES;
        for j in (0..whole).step_by(LANES) {
            let (low, high) = rotated::<L>((cos, sin), head, j);
            // SAFETY: whole vectors of half a head.
            unsafe {
                low.store(turned_low[j..j + LANES].as_mut_ptr());
                high.store(turned_high[j..j + LANES].as_mut_ptr());
            }
        }
        for j in whole..half {
            turned_low[j] = head[j] * cos[j] - head[half + j] * sin[j];
            turned_high[j] = head[half + j] * cos[j] + head[j] * sin[j];
        }
    }
}

/// Dimensions `j..j + 16` of a head and of its second half, rotated.
#[inline(always)]
pub(crate) fn rotated<L: Lanes>((cos, sin): (&[f32], &[f32]), head: &[f32], j: usize) -> (L, L) {
    let half = cos.len();
    assert!(j + LANES <= half && sin.len() == half && head.len() >= 2 * half);
    // SAFETY: whole vectors of half a head.
    unsafe {
        let (cos, sin) = (L::load(cos.as_ptr().add(j)), L::load(sin.as_ptr().add(j)));
        let (low, high) = (L::load(head.as_ptr().add(j)), L::load(head.as_ptr().add(half + j)));
        (low.mul(cos).sub(high.mul(sin)), high.mul(cos).add(low.mul(sin)))
    }
}

fn frequency(rope: &RopeSpec, i: usize, head_dim: usize) -> f32 {
    let plain = 1.0 / rope.theta.powf(2.0 * i as f64 / head_dim as f64);
    let scaled = match &rope.scaling {
        RopeScaling::None => plain,
        RopeScaling::Linear { factor } => plain / factor,
        RopeScaling::Factors(factors) => plain / f64::from(factors[i]),
        &RopeScaling::Llama3 { factor, low_freq_factor, high_freq_factor, original_max_position } => {
            let wavelength = 2.0 * PI / plain;
            if wavelength > original_max_position / low_freq_factor {
                plain / factor
            } else if wavelength < original_max_position / high_freq_factor {
                plain
            } else {
                let ramp = original_max_position / wavelength - low_freq_factor;
                let smooth = ramp / (high_freq_factor - low_freq_factor);
                (1.0 - smooth) * plain / factor + smooth * plain
            }
        }
    };
    scaled as f32
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simd::isa::Isa;
    use crate::simd::vector::Kernel;

    #[test]
    fn frequencies() {
        let rope = |scaling| RopeSpec { theta: 10_000.0, scaling };
        let llama3 = RopeScaling::Llama3 {
            factor: 8.0,
            low_freq_factor: 1.0,
            high_freq_factor: 4.0,
            original_max_position: 256.0,
        };
        // Wavelengths of i = 0, 8, 16, 24 at head_dim 64: 6.3, 63, 628, 6283. Kept below 64, divided above 256.
        for (scaling, i, expected) in [
            (RopeScaling::None, 0, 1.0),
            (RopeScaling::None, 8, 0.1),
            (RopeScaling::Linear { factor: 4.0 }, 8, 0.025),
            (llama3.clone(), 0, 1.0),
            (llama3.clone(), 8, 0.1),
            (llama3, 16, 0.01 / 8.0),
            (RopeScaling::Factors((0..32).map(|i| i as f32 + 1.0).collect()), 8, 0.1 / 9.0),
        ] {
            let got = frequency(&rope(scaling.clone()), i, 64);
            assert!((got - expected).abs() < 1e-7 * expected.max(0.01), "{scaling:?} {i}: {got}");
        }
    }

    struct Rotate<'a>(&'a RopeTable, usize, &'a [f32]);

    impl Kernel for Rotate<'_> {
        type Output = Vec<f32>;

        #[inline(always)]
        fn run<L: Lanes>(self) -> Vec<f32> {
            let mut turned = vec![0.0; self.2.len()];
            self.0.rotate::<L>(self.1, self.2, &mut turned);
            turned
        }
    }

    #[test]
    fn rotation_turns_pairs_half_a_head_apart() {
        // Two dimensions, and a head of one vector and a bit on each side.
        for (head_dim, position) in [(4, 0), (4, 7), (38, 5)] {
            let table = RopeTable::new(&RopeSpec { theta: 100.0, scaling: RopeScaling::None }, head_dim, 8);
            let head: Vec<f32> = (0..head_dim).map(|i| i as f32 - 1.5).collect();
            for isa in Isa::available() {
                let turned = isa.run(Rotate(&table, position, &head));
                for j in 0..head_dim / 2 {
                    let angle = position as f64 * 100_f64.powf(-2.0 * j as f64 / head_dim as f64);
                    let (low, high) = (f64::from(head[j]), f64::from(head[j + head_dim / 2]));
                    let expected = [low * angle.cos() - high * angle.sin(), high * angle.cos() + low * angle.sin()];
                    for (got, expected) in [turned[j], turned[j + head_dim / 2]].into_iter().zip(expected) {
                        assert!((f64::from(got) - expected).abs() < 1e-5, "{isa}: {turned:?}");
                    }
                }
            }
        }
    }
}
