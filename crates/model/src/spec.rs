//! The description of a decoder-only transformer, from which a backend can build it without knowing its architecture's name.

use crate::{Dtype, ModelError};

/// Pre-norm decoder with rotary attention and a gated SiLU feed-forward.
#[derive(Clone, Debug, PartialEq)]
pub struct DecoderSpec {
    pub hidden: usize,
    pub layers: usize,
    pub heads: usize,
    pub kv_heads: usize,
    pub head_dim: usize,
    pub ffn: usize,
    pub vocab: usize,
    pub max_context: usize,
    pub norm_eps: f32,
    pub rope: RopeSpec,
    /// Whether the output head is the embedding table.
    pub tied_head: bool,
    pub qkv_bias: bool,
    pub o_bias: bool,
    pub mlp_bias: bool,
    /// Whether each head of q and k is normed before it is rotated.
    pub qk_norm: bool,
    /// The type of most of the stored weights.
    pub dtype: Dtype,
}

impl DecoderSpec {
    /// Checks that each of `tp` shards can have whole query heads and whole KV heads; several shards may share a KV head.
    pub fn check_tp(&self, tp: usize) -> Result<(), ModelError> {
        let &Self { heads, kv_heads, .. } = self;
        let problem = if tp == 0 || !heads.is_multiple_of(tp) {
            format!("{heads} query heads cannot be dealt out evenly to {tp} shards")
        } else if !kv_heads.is_multiple_of(tp) && !tp.is_multiple_of(kv_heads) {
            format!("of {kv_heads} KV heads and {tp} shards one must divide the other")
        } else {
            return Ok(());
        };
        Err(ModelError::Tp { tp, problem })
    }

    /// The degrees of tensor parallelism that [`Self::check_tp`] accepts.
    pub fn fitting_tps(&self) -> impl Iterator<Item = usize> {
        (1..=self.heads).filter(|&tp| self.check_tp(tp).is_ok())
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct RopeSpec {
    pub theta: f64,
    pub scaling: RopeScaling,
}

#[derive(Clone, Debug, PartialEq)]
pub enum RopeScaling {
    None,
    /// Positions divided by `factor`.
    Linear {
        factor: f64,
    },
    /// Llama 3.1: low frequencies divided by `factor`, high ones kept, a ramp between.
    Llama3 {
        factor: f64,
        low_freq_factor: f64,
        high_freq_factor: f64,
        original_max_position: f64,
    },
    /// Frequency i divided by the i-th factor; one for each pair of a head's dimensions.
    Factors(Vec<f32>),
}

/// A weight by its role; architectures map it to names in checkpoints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    Embedding,
    FinalNorm,
    Head,
    Layer(usize, LayerPart),
}

/// Matrices are `[out, in]`, row-major, as in Hugging Face checkpoints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LayerPart {
    AttentionNorm,
    Q,
    K,
    V,
    O,
    QBias,
    KBias,
    VBias,
    OBias,
    /// As long as one head, like `KNorm`.
    QNorm,
    KNorm,
    FfnNorm,
    Gate,
    Up,
    Down,
    GateBias,
    UpBias,
    DownBias,
}
