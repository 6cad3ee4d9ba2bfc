//! The operations and bytes that a step needs at least.

use std::iter::Sum;
use std::time::Duration;

use baton_cpu::Phase;
use baton_model::{DecoderSpec, Dtype};

/// Operations (a multiply-add is two) and bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Cost {
    pub flops: f64,
    pub bytes: f64,
}

impl Cost {
    pub fn gflops_per_s(&self, time: Duration) -> f64 {
        self.flops / time.as_secs_f64() / 1e9
    }

    pub fn gbytes_per_s(&self, time: Duration) -> f64 {
        self.bytes / time.as_secs_f64() / 1e9
    }
}

impl Sum for Cost {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::default(), |sum, work| Self { flops: sum.flops + work.flops, bytes: sum.bytes + work.bytes })
    }
}

/// The rows of a step, with as many tokens in each sequence.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct StepRows {
    rows: f64,
    sequences: f64,
    /// Pairs of a row and a token that it sees.
    pairs: f64,
    /// Tokens whose KV is read.
    kv_tokens: f64,
}

impl StepRows {
    pub(super) fn new(sequences: usize, first_position: usize, tokens: usize) -> Self {
        let pairs = tokens * first_position + tokens * (tokens + 1) / 2;
        Self {
            rows: (sequences * tokens) as f64,
            sequences: sequences as f64,
            pairs: (sequences * pairs) as f64,
            kv_tokens: (sequences * (first_position + tokens)) as f64,
        }
    }
}

/// Sizes of a model.
#[derive(Clone, Copy, Debug)]
pub(super) struct ModelShape {
    pub(super) layers: f64,
    hidden: f64,
    q: f64,
    kv: f64,
    ffn: f64,
    pub(super) vocab: usize,
    /// Of the weights of all layers, by phase.
    weight_bytes: [f64; Phase::ALL.len()],
    /// Of one value in KV memory.
    kv_value_bytes: f64,
}

impl ModelShape {
    pub(super) fn of(spec: &DecoderSpec, weight_bytes: impl Fn(Phase) -> usize) -> Self {
        Self {
            layers: spec.layers as f64,
            hidden: spec.hidden as f64,
            q: (spec.heads * spec.head_dim) as f64,
            kv: (spec.kv_heads * spec.head_dim) as f64,
            ffn: spec.ffn as f64,
            vocab: spec.vocab,
            weight_bytes: Phase::ALL.map(|phase| weight_bytes(phase) as f64),
            kv_value_bytes: if spec.dtype == Dtype::F32 { 4.0 } else { 2.0 },
        }
    }

    pub(super) fn weight_bytes(&self) -> f64 {
        self.weight_bytes.iter().sum()
    }

    /// For a phase that is a matmul with weights: how often it runs, its depth and its columns.
    fn matrix(&self, phase: Phase) -> Option<(f64, f64, f64)> {
        let &Self { layers, hidden, q, kv, ffn, vocab, .. } = self;
        match phase {
            Phase::Qkv => Some((layers, hidden, q + 2.0 * kv)),
            Phase::Output => Some((layers, q, hidden)),
            Phase::GateUp => Some((layers, hidden, 2.0 * ffn)),
            Phase::Down => Some((layers, ffn, hidden)),
            Phase::Logits => Some((1.0, hidden, vocab as f64)),
            Phase::Embed | Phase::StoreKv | Phase::Attention => None,
        }
    }

    /// Weights and KV are read once, activations are read and written once, as f32.
    pub(super) fn work(&self, phase: Phase, load: &StepRows) -> Cost {
        const ACTIVATION: f64 = size_of::<f32>() as f64;
        if let Some((repeats, k, n)) = self.matrix(phase) {
            let rows = if phase == Phase::Logits { load.sequences } else { load.rows };
            let bytes = self.weight_bytes[phase as usize] + repeats * rows * (k + n) * ACTIVATION;
            return Cost { flops: repeats * 2.0 * rows * k * n, bytes };
        }
        let kv_bytes = 2.0 * self.kv * self.kv_value_bytes;
        match phase {
            Phase::Attention => Cost {
                flops: self.layers * 4.0 * load.pairs * self.q,
                bytes: self.layers * (load.kv_tokens * kv_bytes + 2.0 * load.rows * self.q * ACTIVATION),
            },
            Phase::StoreKv => {
                Cost { flops: 0.0, bytes: self.layers * load.rows * (2.0 * self.kv * ACTIVATION + kv_bytes) }
            }
            _ => Cost { flops: 0.0, bytes: load.rows * self.hidden * 2.0 * ACTIVATION },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_small_model() {
        let mut weight_bytes = [0.0; Phase::ALL.len()];
        weight_bytes[Phase::Down as usize] = 300.0;
        weight_bytes[Phase::Logits as usize] = 80.0;
        let shape = ModelShape {
            layers: 2.0,
            hidden: 8.0,
            q: 8.0,
            kv: 4.0,
            ffn: 16.0,
            vocab: 10,
            weight_bytes,
            kv_value_bytes: 2.0,
        };
        assert_eq!(shape.weight_bytes(), 380.0);
        let prompt = StepRows::new(1, 0, 3);
        assert_eq!(prompt, StepRows { rows: 3.0, sequences: 1.0, pairs: 6.0, kv_tokens: 3.0 });
        let decode = StepRows::new(5, 7, 1);
        assert_eq!(decode, StepRows { rows: 5.0, sequences: 5.0, pairs: 40.0, kv_tokens: 40.0 });
        assert_eq!(shape.work(Phase::Down, &prompt).flops, 2.0 * 2.0 * 3.0 * 16.0 * 8.0);
        assert_eq!(shape.work(Phase::Down, &prompt).bytes, 300.0 + 2.0 * 3.0 * (16.0 + 8.0) * 4.0);
        assert_eq!(shape.work(Phase::Logits, &prompt).flops, 2.0 * 8.0 * 10.0);
        let attention = shape.work(Phase::Attention, &decode);
        assert_eq!(attention.flops, 2.0 * 4.0 * 40.0 * 8.0);
        assert_eq!(attention.bytes, 2.0 * (40.0 * 2.0 * 4.0 * 2.0 + 2.0 * 5.0 * 8.0 * 4.0));
    }
}
