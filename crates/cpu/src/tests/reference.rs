//! A plain forward pass in f64, straight from the definition.

use std::sync::Arc;

use baton_model::{DecoderSpec, Dtype, LayerPart, Part, RopeScaling};
use half::bf16;

use super::runner::{Sequence, Setup, distributions, run_alone};
use super::tiny::{TinyModel, block_spec, odd_spec, wide_group_spec};
use crate::layers::attention::BLOCK_TOKENS;
use crate::memory::kv::KeyScales;
use crate::weights::Weights;
use crate::weights::quant::TRUNCATION_FACTOR;
use crate::{KvDtype, Products};

pub(super) fn tensor(weights: &dyn Weights, part: Part) -> Vec<f64> {
    weights.tensor(part).unwrap().vector().into_iter().map(f64::from).collect()
}

/// Rounds where bf16 storage does: left-hand sides of matmuls, keys and values.
fn rounded(weights: &dyn Weights, x: f64) -> f64 {
    if weights.spec().dtype != Dtype::F32 { bf16::from_f64(x).to_f64() } else { x }
}

/// All heads of a token as pages store them; in int8 keys are scaled first, which queries undo.
fn kept(weights: &dyn Weights, kv: KvDtype, powers: &[f32], x: Vec<f64>) -> Vec<f64> {
    if kv != KvDtype::Int8 {
        return x.into_iter().map(|x| rounded(weights, x)).collect();
    }
    let of_head = |(head, powers): (&[f64], &[f32])| {
        let even: Vec<f64> = head.iter().zip(powers).map(|(x, &power)| x * f64::from(power)).collect();
        let scale = even.iter().fold(0.0, |max: f64, x| max.max(x.abs())) / 127.0;
        let kept = even.into_iter().zip(powers);
        kept.map(|(x, &power)| (x / scale).round_ties_even() * scale / f64::from(power)).collect::<Vec<_>>()
    };
    let dim = weights.spec().head_dim;
    x.chunks(dim).zip(powers.chunks(dim)).flat_map(of_head).collect()
}

fn is_quantized(weights: &dyn Weights, matrix: Part) -> bool {
    weights.tensor(matrix).unwrap().dtype.block_values() > 1
}

/// A matrix as it is multiplied.
fn multiplied(weights: &dyn Weights, products: Products, matrix: Part) -> Vec<f64> {
    let is_cut = is_quantized(weights, matrix) && products == Products::Float;
    let cut = |x: f64| f64::from(f32::from_bits((x as f32 * TRUNCATION_FACTOR).to_bits() & 0xffff_0000));
    tensor(weights, matrix).into_iter().map(|x| if is_cut { cut(x) } else { x }).collect()
}

/// The left-hand side of a matmul.
#[derive(Clone, Copy)]
enum Left<'a> {
    /// Rows that are stored between two matmuls are rounded first.
    Waiting(&'a [f64]),
    Normed(&'a [f64]),
}

/// x · Wᵀ + b
fn linear(weights: &dyn Weights, products: Products, matrix: Part, bias: Option<Part>, x: Left<'_>) -> Vec<f64> {
    let x: Vec<f64> = match x {
        Left::Normed(x) if products == Products::Integer && is_quantized(weights, matrix) => x.to_vec(),
        Left::Normed(x) | Left::Waiting(x) => x.iter().map(|&x| rounded(weights, x)).collect(),
    };
    let bias = bias.map(|bias| tensor(weights, bias));
    let rows = multiplied(weights, products, matrix);
    let dot = |row: &[f64]| row.iter().zip(&x).map(|(w, x)| w * x).sum::<f64>();
    rows.chunks(x.len()).enumerate().map(|(i, row)| dot(row) + bias.as_ref().map_or(0.0, |bias| bias[i])).collect()
}

fn norm(weights: &dyn Weights, part: Part, x: &[f64]) -> Vec<f64> {
    let mean = x.iter().map(|x| x * x).sum::<f64>() / x.len() as f64;
    let scale = 1.0 / (mean + f64::from(weights.spec().norm_eps)).sqrt();
    x.iter().zip(tensor(weights, part)).map(|(x, w)| x * scale * w).collect()
}

fn rotate(weights: &dyn Weights, position: usize, head: &mut [f64]) {
    let (rope, dim) = (&weights.spec().rope, head.len());
    for j in 0..dim / 2 {
        let plain = rope.theta.powf(-2.0 * j as f64 / dim as f64);
        let frequency = match &rope.scaling {
            RopeScaling::None => plain,
            RopeScaling::Linear { factor } => plain / factor,
            RopeScaling::Factors(factors) => plain / f64::from(factors[j]),
            &RopeScaling::Llama3 { factor, low_freq_factor, high_freq_factor, original_max_position } => {
                let turns = original_max_position * plain / (2.0 * std::f64::consts::PI);
                let kept = ((turns - low_freq_factor) / (high_freq_factor - low_freq_factor)).clamp(0.0, 1.0);
                plain * kept + plain / factor * (1.0 - kept)
            }
        };
        let (sin, cos) = (position as f64 * frequency).sin_cos();
        let (a, b) = (head[j], head[j + dim / 2]);
        (head[j], head[j + dim / 2]) = (a * cos - b * sin, b * cos + a * sin);
    }
}

/// The residual stream of every position after the last layer.
fn forward(weights: &dyn Weights, setup: Setup, tokens: &[usize]) -> Vec<Vec<f64>> {
    let (spec, kv) = (weights.spec(), setup.kv_dtype);
    let dim = spec.head_dim;
    let stored = |x: f64| rounded(weights, x);
    let scales = KeyScales::of(weights).unwrap();
    let embedding = tensor(weights, Part::Embedding);
    let mut hidden: Vec<Vec<f64>> =
        tokens.iter().map(|&token| embedding[token * spec.hidden..(token + 1) * spec.hidden].to_vec()).collect();
    for layer in 0..spec.layers {
        let part = |part| Part::Layer(layer, part);
        let project = |x: Left<'_>, matrix, bias, has: bool| {
            linear(weights, setup.products, part(matrix), has.then_some(part(bias)), x)
        };
        let (mut keys, mut values) = (Vec::new(), Vec::new());
        for (position, x) in hidden.iter_mut().enumerate() {
            let normed = norm(weights, part(LayerPart::AttentionNorm), x);
            let mut q = project(Left::Normed(&normed), LayerPart::Q, LayerPart::QBias, spec.qkv_bias);
            let mut k = project(Left::Normed(&normed), LayerPart::K, LayerPart::KBias, spec.qkv_bias);
            let v = project(Left::Normed(&normed), LayerPart::V, LayerPart::VBias, spec.qkv_bias);
            if spec.qk_norm {
                q = q.chunks(dim).flat_map(|head| norm(weights, part(LayerPart::QNorm), head)).collect();
                k = k.chunks(dim).flat_map(|head| norm(weights, part(LayerPart::KNorm), head)).collect();
            }
            q.chunks_mut(dim).chain(k.chunks_mut(dim)).for_each(|head| rotate(weights, position, head));
            keys.push(kept(weights, kv, scales.keys(layer, 0..v.len()), k));
            values.push(kept(weights, kv, &vec![1.0; v.len()], v));
            let mut attended = Vec::new();
            let q: Vec<f64> = q.into_iter().map(stored).collect();
            for (head, q) in q.chunks(dim).enumerate() {
                let first = head / (spec.heads / spec.kv_heads) * dim;
                let score =
                    |k: &Vec<f64>| q.iter().zip(&k[first..]).map(|(q, k)| q * k).sum::<f64>() / (dim as f64).sqrt();
                let scores: Vec<f64> = keys.iter().map(score).collect();
                let max = |scores: &[f64]| scores.iter().fold(f64::NEG_INFINITY, |max, score| max.max(*score));
                let sum: f64 = scores.iter().map(|score| (score - max(&scores)).exp()).sum();
                // Weights are rounded relative to their block's largest.
                let weights = scores.chunks(BLOCK_TOKENS).flat_map(|block| {
                    let weight = |score: &f64| stored((score - max(block)).exp()) * (max(block) - max(&scores)).exp();
                    block.iter().map(weight).collect::<Vec<_>>()
                });
                let weights: Vec<f64> = weights.collect();
                let value = |d: usize| weights.iter().zip(&values).map(|(w, v)| w * v[first + d]).sum::<f64>() / sum;
                attended.extend((0..dim).map(value));
            }
            let o = project(Left::Waiting(&attended), LayerPart::O, LayerPart::OBias, spec.o_bias);
            x.iter_mut().zip(o).for_each(|(x, o)| *x += o);
            let normed = norm(weights, part(LayerPart::FfnNorm), x);
            let gate = project(Left::Normed(&normed), LayerPart::Gate, LayerPart::GateBias, spec.mlp_bias);
            let up = project(Left::Normed(&normed), LayerPart::Up, LayerPart::UpBias, spec.mlp_bias);
            let gated: Vec<f64> = gate.iter().zip(up).map(|(g, u)| g / (1.0 + (-g).exp()) * u).collect();
            let down = project(Left::Waiting(&gated), LayerPart::Down, LayerPart::DownBias, spec.mlp_bias);
            x.iter_mut().zip(down).for_each(|(x, d)| *x += d);
        }
    }
    hidden
}

/// `tolerance` is relative to the largest value of a position's state.
pub(super) fn check_close(name: &str, weights: Arc<dyn Weights>, setup: Setup, len: usize, tolerance: f64) {
    let mut sequence = Sequence::new(0, 3, len, weights.spec().vocab, 0..64);
    let tokens: Vec<usize> = sequence.tokens.iter().map(|token| token.index()).collect();
    let expected = forward(&*weights, setup, &tokens);
    let mut backend = Setup { threads: 2, ..setup }.backend(Arc::clone(&weights));
    run_alone(&mut backend, &mut sequence, 50);
    let got = sequence.hidden.chunks(weights.spec().hidden);
    for (position, (got, expected)) in got.zip(&expected).enumerate() {
        let largest = expected.iter().fold(0.0, |max: f64, x| max.max(x.abs()));
        for (got, expected) in got.iter().map(|&bits| f64::from(f32::from_bits(bits))).zip(expected) {
            let error = (got - expected).abs() / largest;
            assert!(error <= tolerance, "{name}, position {position}: {got} instead of {expected} (of {largest})");
        }
    }
}

#[test]
fn close_to_f64() {
    // A value on the edge between two bf16 may be rounded to the other one, so bf16 is not as close as f32.
    for (dtype, tolerance) in [(Dtype::F32, 1e-5), (Dtype::Bf16, 1e-2)] {
        check_close("odd", Arc::new(TinyModel::new(odd_spec(dtype))), Setup::PLAIN, 290, tolerance);
        check_close("wide group", Arc::new(TinyModel::new(wide_group_spec(dtype))), Setup::PLAIN, 40, tolerance);
    }
    // One and a half vectors.
    let heads_of_24 = DecoderSpec { head_dim: 24, ..odd_spec(Dtype::Bf16) };
    check_close("heads of 24", Arc::new(TinyModel::new(heads_of_24)), Setup::PLAIN, 40, 1e-2);
    check_close("blocks", Arc::new(TinyModel::new(block_spec())), Setup::PLAIN, 40, 1e-2);
    check_close("odd", Arc::new(TinyModel::new(odd_spec(Dtype::Bf16))), Setup::INT8_KV, 290, 1e-2);
    check_close("blocks", Arc::new(TinyModel::new(block_spec())), Setup::INT8_KV, 40, 1e-2);
    check_close("blocks", Arc::new(TinyModel::new(block_spec())), Setup::INTEGER, 40, 1e-2);
}

/// Errors of logits are not averaged by later layers: bf16 on either side would be off by 1/500 of a value, integers of 14 bits are
/// off by 1/16000 of the largest of 32.
#[test]
fn logits_of_quantized_weights_are_nearly_exact() {
    let weights: Arc<dyn Weights> = Arc::new(TinyModel::new(block_spec()));
    let spec = weights.spec();
    let head = tensor(&*weights, if spec.tied_head { Part::Embedding } else { Part::Head });
    for setup in [Setup::PLAIN, Setup::INTEGER] {
        let mut backend = setup.backend(Arc::clone(&weights));
        let sequence = Sequence::new(0, 3, 40, spec.vocab, 0..64);
        let got = distributions(&mut backend, &sequence, spec.vocab);
        let hidden: Vec<f64> = backend.hidden_of_last_step(0).into_iter().map(f64::from).collect();
        let mut largest_error: f64 = 0.0;
        for (got, hidden) in got.iter().zip(hidden.chunks(spec.hidden)) {
            let normed = norm(&*weights, Part::FinalNorm, hidden);
            let dot = |row: &[f64]| row.iter().zip(&normed).map(|(w, x)| w * x).sum::<f64>();
            let logits: Vec<f64> = head.chunks(spec.hidden).map(dot).collect();
            let all = logits.iter().map(|logit| logit.exp()).sum::<f64>().ln();
            let size = head.chunks(spec.hidden).map(|row| row.iter().map(|w| w * w).sum::<f64>()).fold(0.0, f64::max);
            let size = (size * normed.iter().map(|x| x * x).sum::<f64>()).sqrt() / (spec.hidden as f64).sqrt();
            assert_eq!(got.top.len(), spec.vocab);
            for candidate in &got.top {
                let error = (f64::from(candidate.logprob) - (logits[candidate.token.index()] - all)).abs();
                largest_error = largest_error.max(error / size);
            }
        }
        assert!(largest_error < 0.002, "{:?}: {largest_error}", setup.products);
    }
}
