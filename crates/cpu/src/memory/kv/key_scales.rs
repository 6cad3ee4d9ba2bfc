//! An int8 key has one scale for all its dimensions, so a dimension that is always large would leave few of the 255 values to the
//! others. Hence keys are divided by powers of two of about their size before they are quantized, and queries are multiplied by them:
//!
//! ```text
//!   q · k  =  Σ (q s) (k / s)         each s from the weights alone: the bias of k, and how much its rows spread
//! ```

use std::ops::Range;

use baton_model::{LayerPart, Part};

use crate::weights::{Weights, matrix, vector};
use baton_backend::BackendError;

/// Bounds the powers of two; the sizes of a model's dimensions lie far inside.
const LARGEST: f32 = 16_777_216.0;

/// Powers of two for every layer, KV head and dimension.
pub(crate) struct KeyScales {
    /// Values per layer.
    width: usize,
    keys: Vec<f32>,
    queries: Vec<f32>,
}

impl KeyScales {
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

    /// 1 / s for some rows of k, to be applied after rotation.
    pub(crate) fn keys(&self, layer: usize, rows: Range<usize>) -> &[f32] {
        &self.keys[layer * self.width..][rows]
    }

    /// s for the queries that meet these rows.
    pub(crate) fn queries(&self, layer: usize, rows: Range<usize>) -> &[f32] {
        &self.queries[layer * self.width..][rows]
    }
}

/// The expected size of each row of k: its bias, and two standard deviations of its product with a normed vector.
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

/// The power of two of each dimension of a head. Dimensions that are rotated together get the same one.
fn power_of_pairs(sizes: &[f32]) -> impl Iterator<Item = f32> {
    let half = sizes.len() / 2;
    (0..sizes.len()).map(move |dim| {
        let (one, other) = (sizes[dim % half], sizes[dim % half + half]);
        nearest_power((one * one + other * other).sqrt())
    })
}

/// Uses only operations that every machine rounds alike, since engines must agree.
fn nearest_power(size: f32) -> f32 {
    const EXPONENT_BITS: u32 = 0x7f80_0000;
    let above = (size * std::f32::consts::SQRT_2).clamp(1.0 / LARGEST, LARGEST);
    if above.is_nan() { 1.0 } else { f32::from_bits(above.to_bits() & EXPONENT_BITS) }
}

/// Multiplies a rotated head with its powers of two, which is exact.
#[inline(always)]
pub(crate) fn apply_scales(head: &mut [f32], powers: &[f32]) {
    head.iter_mut().zip(powers).for_each(|(value, power)| *value *= power);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dimensions_that_are_rotated_together_have_one_power() {
        for (sizes, powers) in [
            ([3.0, 100.0, 4.0, 1.0], [4.0, 128.0, 4.0, 128.0]),
            // From √2 on the next power is taken.
            ([1.0, 1.4, 0.0, 0.0], [1.0, 1.0, 1.0, 1.0]),
            ([1.42, 2.8, 0.0, 0.0], [2.0, 2.0, 2.0, 2.0]),
            ([0.0, 0.1, 0.0, 0.2], [1.0 / LARGEST, 0.25, 1.0 / LARGEST, 0.25]),
            ([f32::NAN, f32::INFINITY, 1.0, 1.0], [1.0, LARGEST, 1.0, LARGEST]),
        ] {
            assert_eq!(power_of_pairs(&sizes).collect::<Vec<_>>(), powers, "{sizes:?}");
        }
    }
}
