//! One scale for all dimensions of a key: a dimension that is always large would leave few codes to the others. So before
//! they become codes, keys are divided by powers of two of about their size, and queries are multiplied by the same:
//!
//! ```text
//!   q · k  =  Σ (q s) (k / s)         each s from the weights alone: the bias of k, and how much its rows spread
//! ```

use std::ops::Range;

use baton_model::{LayerPart, Part};

use crate::weights::{Weights, matrix, vector};
use baton_backend::BackendError;

/// More is not needed to tell dimensions of a model apart.
const LARGEST: f32 = 16_777_216.0;

/// Powers of two for every layer, KV head and dimension.
pub(crate) struct Evening {
    /// Of one layer.
    width: usize,
    keys: Vec<f32>,
    queries: Vec<f32>,
}

impl Evening {
    pub(crate) fn of(weights: &dyn Weights) -> Result<Self, BackendError> {
        let spec = weights.spec();
        let mut queries = Vec::new();
        for layer in 0..spec.layers {
            for sizes in sizes(weights, layer)?.chunks(spec.head_dim) {
                queries.extend(power_of_pairs(sizes));
            }
        }
        Ok(Self { width: spec.kv_heads * spec.head_dim, keys: queries.iter().map(|s| 1.0 / s).collect(), queries })
    }

    /// 1 / s for some rows of k, after they were rotated.
    pub(crate) fn keys(&self, layer: usize, rows: Range<usize>) -> &[f32] {
        &self.keys[layer * self.width..][rows]
    }

    /// s for queries that look at them.
    pub(crate) fn queries(&self, layer: usize, rows: Range<usize>) -> &[f32] {
        &self.queries[layer * self.width..][rows]
    }
}

/// How large each row of k is expected to be: its bias, and two deviations of a product with what a norm has made even.
fn sizes(weights: &dyn Weights, layer: usize) -> Result<Vec<f32>, BackendError> {
    let (spec, part) = (weights.spec(), |part| Part::Layer(layer, part));
    let rows = spec.kv_heads * spec.head_dim;
    if spec.qk_norm {
        let norm = vector(weights, part(LayerPart::KNorm), spec.head_dim)?;
        return Ok((0..rows).map(|row| norm[row % spec.head_dim].abs()).collect());
    }
    let norm = vector(weights, part(LayerPart::AttentionNorm), spec.hidden)?;
    let k = matrix(weights, part(LayerPart::K), rows, spec.hidden)?;
    let bias = match spec.qkv_bias {
        true => vector(weights, part(LayerPart::KBias), rows)?,
        false => vec![0.0; rows],
    };
    let mut values = vec![0.0; spec.hidden];
    let size = |(row, bias): (usize, &f32)| {
        k.dtype.read(k.row(row), &mut values);
        let spread: f32 = values.iter().zip(&norm).map(|(value, norm)| (value * norm) * (value * norm)).sum();
        bias.abs() + 2.0 * spread.sqrt()
    };
    Ok(bias[..rows].iter().enumerate().map(size).collect())
}

/// Of each dimension of a head. Those that turn together become as large as both.
fn power_of_pairs(sizes: &[f32]) -> impl Iterator<Item = f32> {
    let half = sizes.len() / 2;
    (0..sizes.len()).map(move |dim| {
        let (one, other) = (sizes[dim % half], sizes[dim % half + half]);
        nearest_power((one * one + other * other).sqrt())
    })
}

/// From operations that every machine rounds alike: engines must agree.
fn nearest_power(size: f32) -> f32 {
    const EXPONENT_BITS: u32 = 0x7f80_0000;
    let above = (size * std::f32::consts::SQRT_2).clamp(1.0 / LARGEST, LARGEST);
    if above.is_nan() { 1.0 } else { f32::from_bits(above.to_bits() & EXPONENT_BITS) }
}

/// Multiplies a rotated head with its powers of two, which rounds nothing.
#[inline(always)]
pub(crate) fn even_out(head: &mut [f32], powers: &[f32]) {
    head.iter_mut().zip(powers).for_each(|(value, power)| *value *= power);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dimensions_that_turn_together_have_one_power() {
        for (sizes, powers) in [
            ([3.0, 100.0, 4.0, 1.0], [4.0, 128.0, 4.0, 128.0]),
            // √2 and more go up.
            ([1.0, 1.4, 0.0, 0.0], [1.0, 1.0, 1.0, 1.0]),
            ([1.42, 2.8, 0.0, 0.0], [2.0, 2.0, 2.0, 2.0]),
            ([0.0, 0.1, 0.0, 0.2], [1.0 / LARGEST, 0.25, 1.0 / LARGEST, 0.25]),
            ([f32::NAN, f32::INFINITY, 1.0, 1.0], [1.0, LARGEST, 1.0, LARGEST]),
        ] {
            assert_eq!(power_of_pairs(&sizes).collect::<Vec<_>>(), powers, "{sizes:?}");
        }
    }
}
