//! One layer with the shape of a known model and random weights: what kernels cost does not depend on the values they multiply.

use baton_cpu::Weights;
use baton_model::{DecoderSpec, Dtype, LayerPart, Part, RopeScaling, RopeSpec, TensorView};

pub(super) struct RandomLayer {
    pub(super) spec: DecoderSpec,
    shapes: Vec<(Part, Vec<usize>)>,
    /// As long as the largest tensor; the others are its beginning.
    noise: Vec<u8>,
}

impl RandomLayer {
    /// Llama 3.2 1B, with a head that does not hide the layer.
    pub(super) fn llama_1b(max_context: usize) -> Self {
        let spec = DecoderSpec {
            hidden: 2048,
            layers: 1,
            heads: 32,
            kv_heads: 8,
            head_dim: 64,
            ffn: 8192,
            vocab: 4096,
            max_context: max_context + 1,
            norm_eps: 1e-5,
            rope: RopeSpec { theta: 500_000.0, scaling: RopeScaling::None },
            tied_head: true,
            qkv_bias: false,
            o_bias: false,
            mlp_bias: false,
            qk_norm: false,
            dtype: Dtype::Bf16,
        };
        Self::new(spec)
    }

    fn new(spec: DecoderSpec) -> Self {
        use LayerPart as P;
        let &DecoderSpec { hidden, ffn, vocab, .. } = &spec;
        let (q, kv) = (spec.heads * spec.head_dim, spec.kv_heads * spec.head_dim);
        let layer = [
            (P::AttentionNorm, vec![hidden]),
            (P::Q, vec![q, hidden]),
            (P::K, vec![kv, hidden]),
            (P::V, vec![kv, hidden]),
            (P::O, vec![hidden, q]),
            (P::FfnNorm, vec![hidden]),
            (P::Gate, vec![ffn, hidden]),
            (P::Up, vec![ffn, hidden]),
            (P::Down, vec![hidden, ffn]),
        ];
        let mut shapes = vec![(Part::Embedding, vec![vocab, hidden]), (Part::FinalNorm, vec![hidden])];
        shapes.extend(layer.map(|(part, shape)| (Part::Layer(0, part), shape)));
        let largest = shapes.iter().map(|(_, shape)| shape.iter().product()).max().unwrap_or(0);
        Self { spec, shapes, noise: noise(largest) }
    }
}

/// Values of bf16 in [-1/32, 1/32).
fn noise(values: usize) -> Vec<u8> {
    let mut state = 1_u64;
    let random = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let value = ((state >> 40) as f32 / (1_u64 << 23) as f32 - 1.0) / 32.0;
        // A bf16 is the upper half of an f32.
        ((value.to_bits() >> 16) as u16).to_le_bytes()
    };
    std::iter::repeat_with(random).take(values).flatten().collect()
}

impl Weights for RandomLayer {
    fn spec(&self) -> &DecoderSpec {
        &self.spec
    }

    fn tensor(&self, part: Part) -> Result<TensorView<'_>, String> {
        let found = self.shapes.iter().find(|(candidate, _)| *candidate == part);
        let (_, shape) = found.ok_or_else(|| format!("no {part:?}"))?;
        let bytes = &self.noise[..self.spec.dtype.bytes_of(shape.iter().product())];
        Ok(TensorView::new(self.spec.dtype, shape, bytes))
    }

    fn weights_id(&self) -> String {
        "random".to_owned()
    }
}
