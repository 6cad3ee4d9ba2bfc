//! Random models of awkward shapes.

use baton_model::{DecoderSpec, Dtype, LayerPart, Part, RopeScaling, RopeSpec, TensorView};
use half::{bf16, f16};

use crate::weights::Weights;

pub(super) struct TinyModel {
    spec: DecoderSpec,
    tensors: Vec<(Part, Vec<usize>, Dtype, Vec<u8>)>,
}

/// Grouped heads, odd sizes, biases everywhere, llama3 scaling.
pub(crate) fn odd_spec(dtype: Dtype) -> DecoderSpec {
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

/// Models with a depth over 2048, from which on matmuls are cut along k: into the gates, with enough columns that the sums of many
/// rows are kept in several groups; out of the gates; and out of the heads, enough of them that q, k and v of many rows are stored
/// past the caches. The gates of the last are a few blocks deeper than what stays in L1.
pub(super) fn deep_specs() -> [DecoderSpec; 3] {
    let narrow = DecoderSpec { layers: 1, heads: 2, kv_heads: 1, head_dim: 32, ..wide_group_spec(Dtype::Bf16) };
    [
        DecoderSpec { hidden: 2090, ffn: 1600, vocab: 40, ..narrow.clone() },
        DecoderSpec { hidden: 80, ffn: 4200, vocab: 40, ..narrow.clone() },
        DecoderSpec { hidden: 80, ffn: 800, vocab: 40, heads: 66, kv_heads: 3, ..narrow },
    ]
}

/// Sizes that every block type can have.
pub(super) fn block_spec() -> DecoderSpec {
    DecoderSpec { hidden: 256, heads: 4, kv_heads: 2, head_dim: 32, ffn: 512, ..wide_group_spec(Dtype::Q4_1) }
}

/// A different type for each matrix, like the mixtures in real files.
fn block_dtype(part: Part) -> Dtype {
    use LayerPart as P;
    match part {
        Part::Layer(_, P::Q | P::K) => Dtype::Q4_1,
        Part::Layer(0, P::V) => Dtype::Q5_0,
        Part::Layer(_, P::V) => Dtype::Q6K,
        Part::Layer(_, P::O) => Dtype::Q4_0,
        Part::Layer(0, P::Gate) => Dtype::Q4K,
        Part::Layer(_, P::Gate) => Dtype::Q3K,
        Part::Layer(0, P::Up) => Dtype::Q5_1,
        Part::Layer(_, P::Up) => Dtype::Q2K,
        Part::Layer(0, P::Down) => Dtype::Q5K,
        Part::Layer(_, P::Down) => Dtype::Q6K,
        _ => Dtype::Q8_0,
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
        let mut tensor = |part: Part, shape: &[usize]| -> (Dtype, Vec<u8>) {
            let count = shape.iter().product();
            let [_, depth] = shape else {
                let values = (0..count).map(|_| 0.8 + 0.4 * random(&mut state));
                return match spec.dtype {
                    Dtype::Bf16 => {
                        (Dtype::Bf16, values.flat_map(|value| bf16::from_f32(value).to_le_bytes()).collect())
                    }
                    _ => (Dtype::F32, values.flat_map(f32::to_le_bytes).collect()),
                };
            };
            let largest = 2.5 / (*depth as f32).sqrt();
            match spec.dtype {
                Dtype::F32 => {
                    (Dtype::F32, (0..count).flat_map(|_| (largest * random(&mut state)).to_le_bytes()).collect())
                }
                Dtype::Bf16 => {
                    let values = (0..count).map(|_| bf16::from_f32(largest * random(&mut state)));
                    (Dtype::Bf16, values.flat_map(bf16::to_le_bytes).collect())
                }
                _ => (block_dtype(part), blocks(block_dtype(part), count, largest, &mut state)),
            }
        };
        let tensors = parts.into_iter().map(|(part, shape)| {
            let (dtype, bytes) = tensor(part, &shape);
            (part, shape, dtype, bytes)
        });
        let tensors = tensors.collect();
        Self { spec, tensors }
    }
}

/// Random quantized values; scales and minima keep values about as small as `largest`.
fn blocks(dtype: Dtype, count: usize, largest: f32, state: &mut u64) -> Vec<u8> {
    let mut bytes: Vec<u8> = (0..dtype.bytes_of(count)).map(|_| (random(state) * 128.0) as i8 as u8).collect();
    for block in bytes.chunks_mut(dtype.block_bytes()) {
        let mut put = |at: usize, value: f32| block[at..at + 2].copy_from_slice(&f16::from_f32(value).to_le_bytes());
        match dtype {
            Dtype::Q4_0 => put(0, largest / 8.0),
            Dtype::Q5_0 => put(0, largest / 16.0),
            Dtype::Q8_0 => put(0, largest / 128.0),
            Dtype::Q4_1 => [(0, largest / 8.0), (2, -largest)].into_iter().for_each(|(at, value)| put(at, value)),
            Dtype::Q5_1 => [(0, largest / 16.0), (2, -largest)].into_iter().for_each(|(at, value)| put(at, value)),
            Dtype::Q4K => {
                [(0, largest / 500.0), (2, largest / 64.0)].into_iter().for_each(|(at, value)| put(at, value))
            }
            Dtype::Q5K => {
                [(0, largest / 1000.0), (2, largest / 64.0)].into_iter().for_each(|(at, value)| put(at, value))
            }
            Dtype::Q2K => {
                [(80, largest / 22.0), (82, largest / 15.0)].into_iter().for_each(|(at, value)| put(at, value))
            }
            Dtype::Q3K => put(108, largest / 128.0),
            _ => put(dtype.block_bytes() - 2, largest / 4096.0),
        }
    }
    bytes
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
        let (_, shape, dtype, bytes) = found.ok_or_else(|| format!("no {part:?}"))?;
        Ok(TensorView::new(*dtype, shape, bytes))
    }

    fn weights_id(&self) -> String {
        "tiny".to_owned()
    }
}
