//! What Llama's descendants share.

use crate::{Config, DecoderSpec, Dtype, LayerPart, ModelError, Part, rope};

/// What transformers assumes where config.json is silent.
pub(super) struct Defaults {
    pub(super) max_context: usize,
    pub(super) norm_eps: f64,
}

/// A decoder without biases.
pub(super) fn decoder(config: &Config, defaults: &Defaults) -> Result<DecoderSpec, ModelError> {
    refuse_what_is_not_built(config)?;
    let hidden = config.required_size("hidden_size")?;
    let heads = config.required_size("num_attention_heads")?;
    let kv_heads = config.size("num_key_value_heads")?.unwrap_or(heads);
    if heads % kv_heads != 0 {
        let problem = format!("expected a divisor of num_attention_heads {heads}, got {kv_heads}");
        return Err(config.refuse("num_key_value_heads", problem));
    }
    Ok(DecoderSpec {
        hidden,
        layers: config.required_size("num_hidden_layers")?,
        heads,
        kv_heads,
        head_dim: head_dim(config, hidden, heads)?,
        ffn: config.required_size("intermediate_size")?,
        vocab: config.required_size("vocab_size")?,
        max_context: config.size("max_position_embeddings")?.unwrap_or(defaults.max_context),
        norm_eps: config.positive("rms_norm_eps")?.unwrap_or(defaults.norm_eps) as f32,
        rope: rope::read(config)?,
        tied_head: config.flag("tie_word_embeddings", false)?,
        qkv_bias: false,
        o_bias: false,
        mlp_bias: false,
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

/// Rotation pairs dimensions, so there is an even number of them.
fn head_dim(config: &Config, hidden: usize, heads: usize) -> Result<usize, ModelError> {
    let (field, head_dim) = match config.size("head_dim")? {
        Some(head_dim) => ("head_dim", head_dim),
        None if hidden.is_multiple_of(heads) => ("hidden_size", hidden / heads),
        None => {
            let problem = format!("expected a multiple of num_attention_heads {heads}, got {hidden}");
            return Err(config.refuse("hidden_size", problem));
        }
    };
    if head_dim % 2 != 0 {
        return Err(
            config.refuse(field, format!("gives heads of {head_dim} dimensions; rotation needs an even number"))
        );
    }
    if heads.saturating_mul(head_dim) > i32::MAX as usize {
        return Err(config.refuse(field, format!("{heads} heads of {head_dim} dimensions are too many")));
    }
    Ok(head_dim)
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
        LayerPart::FfnNorm => "post_attention_layernorm.weight",
        LayerPart::Gate => "mlp.gate_proj.weight",
        LayerPart::Up => "mlp.up_proj.weight",
        LayerPart::Down => "mlp.down_proj.weight",
        LayerPart::GateBias => "mlp.gate_proj.bias",
        LayerPart::UpBias => "mlp.up_proj.bias",
        LayerPart::DownBias => "mlp.down_proj.bias",
    }
}
