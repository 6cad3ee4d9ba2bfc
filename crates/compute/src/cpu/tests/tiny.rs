//! Random models of awkward shapes.

use baton_model::{DecoderSpec, Dtype, LayerPart, Part, RopeScaling, RopeSpec, TensorView};
use half::bf16;

use crate::cpu::weights::Weights;

pub(super) struct TinyModel {
    spec: DecoderSpec,
    tensors: Vec<(Part, Vec<usize>, Vec<u8>)>,
}

/// Grouped heads, odd sizes, biases everywhere, llama3 scaling.
pub(in crate::cpu) fn odd_spec(dtype: Dtype) -> DecoderSpec {
    DecoderSpec {
        hidden: 37,
        layers: 2,
        heads: 6,
        kv_heads: 2,
        head_dim: 10,
        ffn: 45,
        vocab: 131,
        max_context: 1024,
        norm_eps: 1e-5,
        rope: RopeSpec {
            theta: 10_000.0,
            scaling: RopeScaling::Llama3 {
                factor: 4.0,
                low_freq_factor: 1.0,
                high_freq_factor: 4.0,
                original_max_position: 64.0,
            },
        },
        tied_head: false,
        qkv_bias: true,
        o_bias: true,
        mlp_bias: true,
        qk_norm: false,
        dtype,
    }
}

/// One KV head for thirty query heads: more rows at one position than a block holds.
pub(super) fn wide_group_spec(dtype: Dtype) -> DecoderSpec {
    DecoderSpec {
        hidden: 64,
        layers: 2,
        heads: 30,
        kv_heads: 1,
        head_dim: 16,
        ffn: 96,
        vocab: 200,
        max_context: 512,
        rope: RopeSpec { theta: 500.0, scaling: RopeScaling::Linear { factor: 2.0 } },
        tied_head: true,
        qkv_bias: false,
        o_bias: false,
        mlp_bias: false,
        qk_norm: true,
        ..odd_spec(dtype)
    }
}

impl TinyModel {
    pub(super) fn new(spec: DecoderSpec) -> Self {
        let (h, q, kv, ffn) = (spec.hidden, spec.heads * spec.head_dim, spec.kv_heads * spec.head_dim, spec.ffn);
        let mut parts = vec![(Part::Embedding, vec![spec.vocab, h]), (Part::FinalNorm, vec![h])];
        if !spec.tied_head {
            parts.push((Part::Head, vec![spec.vocab, h]));
        }
        for layer in 0..spec.layers {
            use LayerPart as P;
            let shapes = [
                (P::AttentionNorm, vec![h], true),
                (P::Q, vec![q, h], true),
                (P::K, vec![kv, h], true),
                (P::V, vec![kv, h], true),
                (P::O, vec![h, q], true),
                (P::QBias, vec![q], spec.qkv_bias),
                (P::KBias, vec![kv], spec.qkv_bias),
                (P::VBias, vec![kv], spec.qkv_bias),
                (P::OBias, vec![h], spec.o_bias),
                (P::QNorm, vec![spec.head_dim], spec.qk_norm),
                (P::KNorm, vec![spec.head_dim], spec.qk_norm),
                (P::FfnNorm, vec![h], true),
                (P::Gate, vec![ffn, h], true),
                (P::Up, vec![ffn, h], true),
                (P::Down, vec![h, ffn], true),
                (P::GateBias, vec![ffn], spec.mlp_bias),
                (P::UpBias, vec![ffn], spec.mlp_bias),
                (P::DownBias, vec![h], spec.mlp_bias),
            ];
            let present = shapes.into_iter().filter(|(.., present)| *present);
            parts.extend(present.map(|(part, shape, _)| (Part::Layer(layer, part), shape)));
        }
        let mut state = 1_u64;
        let mut tensor = |shape: &[usize]| -> Vec<u8> {
            let values = (0..shape.iter().product()).map(|_| {
                let noise = random(&mut state);
                match shape {
                    [_] => 0.8 + 0.4 * noise,
                    [_, depth, ..] => noise * 2.5 / (*depth as f32).sqrt(),
                    [] => noise,
                }
            });
            match spec.dtype {
                Dtype::Bf16 => values.flat_map(|value| bf16::from_f32(value).to_le_bytes()).collect(),
                _ => values.flat_map(f32::to_le_bytes).collect(),
            }
        };
        let tensors = parts.into_iter().map(|(part, shape)| {
            let bytes = tensor(&shape);
            (part, shape, bytes)
        });
        let tensors = tensors.collect();
        Self { spec, tensors }
    }
}

/// In [-1, 1).
fn random(state: &mut u64) -> f32 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    ((z ^ (z >> 31)) >> 40) as f32 / (1_u64 << 23) as f32 - 1.0
}

impl Weights for TinyModel {
    fn spec(&self) -> &DecoderSpec {
        &self.spec
    }

    fn tensor(&self, part: Part) -> Result<TensorView<'_>, String> {
        let found = self.tensors.iter().find(|(candidate, ..)| *candidate == part);
        let (_, shape, bytes) = found.ok_or_else(|| format!("no {part:?}"))?;
        Ok(TensorView::new(self.spec.dtype, shape, bytes))
    }

    fn weights_id(&self) -> String {
        "tiny".to_owned()
    }
}
