//! Keys in int8 are scaled by their expected sizes, which these tests compute from the weights independently.

use baton_model::{Dtype, LayerPart, Part};

use super::reference::tensor;
use super::tiny::{TinyModel, odd_spec, wide_group_spec};
use crate::memory::kv::KeyScales;
use crate::weights::Weights;

/// |bias| + twice the length of the row, with its columns multiplied by the weights of the norm before it.
fn size(weights: &dyn Weights, layer: usize, row: usize) -> f64 {
    let spec = weights.spec();
    let part = |part| tensor(weights, Part::Layer(layer, part));
    if spec.qk_norm {
        return part(LayerPart::KNorm)[row % spec.head_dim].abs();
    }
    let (k, norm) = (part(LayerPart::K), part(LayerPart::AttentionNorm));
    let row_of_k = &k[row * spec.hidden..(row + 1) * spec.hidden];
    let square: f64 = row_of_k.iter().zip(&norm).map(|(k, norm)| (k * norm).powi(2)).sum();
    let bias = if spec.qkv_bias { part(LayerPart::KBias)[row].abs() } else { 0.0 };
    bias + 2.0 * square.sqrt()
}

#[test]
fn powers_are_nearest_to_the_expected_sizes() {
    for spec in [odd_spec(Dtype::Bf16), wide_group_spec(Dtype::Bf16)] {
        let model = TinyModel::new(spec);
        let (spec, scales) = (model.spec(), KeyScales::of(&model).unwrap());
        let (rows, half) = (spec.kv_heads * spec.head_dim, spec.head_dim / 2);
        for layer in 0..spec.layers {
            let (queries, keys) = (scales.queries(layer, 0..rows), scales.keys(layer, 0..rows));
            for row in 0..rows {
                let (head, dim) = (row / spec.head_dim * spec.head_dim, row % spec.head_dim % half);
                let both = size(&model, layer, head + dim).hypot(size(&model, layer, head + dim + half));
                let ratio = f64::from(queries[row]) / both;
                // The nearest power of two, with a margin because f32 rounds at the border between two.
                let nearest = std::f64::consts::FRAC_1_SQRT_2 * 0.999..=std::f64::consts::SQRT_2 * 1.001;
                assert!(nearest.contains(&ratio), "layer {layer}, row {row}: {} for {both}", queries[row]);
                assert_eq!(queries[row] * keys[row], 1.0);
            }
        }
    }
}
