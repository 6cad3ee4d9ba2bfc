//! Reads models like Llama from Hugging Face directories.

use serde_json::Value;

use super::common::{SizeFields, Sizes};
use crate::{Config, DecoderSpec, Dtype, LayerPart, ModelError, Part, rope};

const NAMES: SizeFields = SizeFields {
    hidden: "hidden_size",
    layers: "num_hidden_layers",
    heads: "num_attention_heads",
    kv_heads: "num_key_value_heads",
    head_dim: "head_dim",
    ffn: "intermediate_size",
};

/// Values that transformers assumes where config.json has no field.
pub(super) struct Defaults {
    pub(super) max_context: usize,
    pub(super) norm_eps: f64,
}

/// A decoder without biases and without norms of its heads.
pub(super) fn decoder(config: &Config, defaults: &Defaults) -> Result<DecoderSpec, ModelError> {
    refuse_what_is_not_built(config)?;
    let Sizes { hidden, layers, heads, kv_heads, head_dim, ffn } = Sizes::read(config, &NAMES)?;
    Ok(DecoderSpec {
        hidden,
        layers,
        heads,
        kv_heads,
        head_dim,
        ffn,
        vocab: config.required_size("vocab_size")?,
        max_context: config.size("max_position_embeddings")?.unwrap_or(defaults.max_context),
        norm_eps: config.positive("rms_norm_eps")?.unwrap_or(defaults.norm_eps) as f32,
        rope: rope::read(config)?,
        tied_head: config.flag("tie_word_embeddings", false)?,
        qkv_bias: false,
        o_bias: false,
        mlp_bias: false,
        qk_norm: false,
        dtype: dtype(config)?,
    })
}

fn refuse_what_is_not_built(config: &Config) -> Result<(), ModelError> {
    if let Some(activation) = config.text("hidden_act")?
        && activation != "silu"
    {
        return Err(config.refuse("hidden_act", format!("{activation:?} is not supported; only \"silu\" is")));
    }
    match config.get("quantization_config") {
        Some(_) => Err(config.refuse("quantization_config", "quantized checkpoints are not supported")),
        None => Ok(()),
    }
}

/// Refuses Qwen's sliding window: transformers 4 has a switch for it, transformers 5 a list of layer types.
pub(super) fn refuse_sliding_window(config: &Config) -> Result<(), ModelError> {
    if config.flag("use_sliding_window", false)? {
        return Err(config.refuse("use_sliding_window", "true is not supported"));
    }
    match config.get("layer_types") {
        None => Ok(()),
        Some(Value::Array(types)) => match types.iter().find(|kind| kind.as_str() != Some("full_attention")) {
            Some(kind) => {
                Err(config.refuse("layer_types", format!("{kind} is not supported; only \"full_attention\" is")))
            }
            None => Ok(()),
        },
        found => Err(config.wrong("layer_types", "a list of names", found)),
    }
}

fn dtype(config: &Config) -> Result<Dtype, ModelError> {
    let field = if config.get("dtype").is_some() { "dtype" } else { "torch_dtype" };
    match config.text(field)? {
        None | Some("float32") => Ok(Dtype::F32),
        Some("float16") => Ok(Dtype::F16),
        Some("bfloat16") => Ok(Dtype::Bf16),
        Some(other) => {
            Err(config.refuse(field, format!("{other:?} is not supported; supported are float32, float16, bfloat16")))
        }
    }
}

pub(super) fn tensor_name(part: Part) -> String {
    match part {
        Part::Embedding => "model.embed_tokens.weight".into(),
        Part::FinalNorm => "model.norm.weight".into(),
        Part::Head => "lm_head.weight".into(),
        Part::Layer(layer, part) => format!("model.layers.{layer}.{}", layer_tensor_name(part)),
    }
}

fn layer_tensor_name(part: LayerPart) -> &'static str {
    match part {
        LayerPart::AttentionNorm => "input_layernorm.weight",
        LayerPart::Q => "self_attn.q_proj.weight",
        LayerPart::K => "self_attn.k_proj.weight",
        LayerPart::V => "self_attn.v_proj.weight",
        LayerPart::O => "self_attn.o_proj.weight",
        LayerPart::QBias => "self_attn.q_proj.bias",
        LayerPart::KBias => "self_attn.k_proj.bias",
        LayerPart::VBias => "self_attn.v_proj.bias",
        LayerPart::OBias => "self_attn.o_proj.bias",
        LayerPart::QNorm => "self_attn.q_norm.weight",
        LayerPart::KNorm => "self_attn.k_norm.weight",
        LayerPart::FfnNorm => "post_attention_layernorm.weight",
        LayerPart::Gate => "mlp.gate_proj.weight",
        LayerPart::Up => "mlp.up_proj.weight",
        LayerPart::Down => "mlp.down_proj.weight",
        LayerPart::GateBias => "mlp.gate_proj.bias",
        LayerPart::UpBias => "mlp.up_proj.bias",
        LayerPart::DownBias => "mlp.down_proj.bias",
    }
}
