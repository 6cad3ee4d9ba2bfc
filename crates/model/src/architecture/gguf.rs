//! Reads models like Llama from GGUF files, under llama.cpp's names.

use super::common::{SizeFields, Sizes};
use crate::gguf::GgufFile;
use crate::{Config, DecoderSpec, LayerPart, ModelError, Part, RopeScaling, RopeSpec};

const NAMES: SizeFields = SizeFields {
    hidden: "embedding_length",
    layers: "block_count",
    heads: "attention.head_count",
    kv_heads: "attention.head_count_kv",
    head_dim: "attention.key_length",
    ffn: "feed_forward_length",
};
const ROPE_FACTORS: &str = "rope_freqs.weight";

/// Biases, norms of heads and an untied output exist if the file has tensors for them.
pub(super) fn decoder(file: &GgufFile, architecture: &str) -> Result<DecoderSpec, ModelError> {
    let fields = file.values().under(architecture);
    refuse_what_is_not_built(&fields)?;
    let Sizes { hidden, layers, heads, kv_heads, head_dim, ffn } = Sizes::read(&fields, &NAMES)?;
    same_if_given(&fields, "attention.value_length", head_dim)?;
    same_if_given(&fields, "rope.dimension_count", head_dim)?;
    let has = |part| file.has(&tensor_name(Part::Layer(0, part)));
    Ok(DecoderSpec {
        hidden,
        layers,
        heads,
        kv_heads,
        head_dim,
        ffn,
        vocab: file.tensor(&tensor_name(Part::Embedding))?.shape[0],
        max_context: max_context(&fields)?,
        norm_eps: fields.required_positive("attention.layer_norm_rms_epsilon")? as f32,
        rope: rope(file, &fields, head_dim)?,
        tied_head: !file.has(&tensor_name(Part::Head)),
        qkv_bias: has(LayerPart::QBias),
        o_bias: has(LayerPart::OBias),
        mlp_bias: has(LayerPart::GateBias),
        qk_norm: has(LayerPart::QNorm),
        dtype: file.most_used_dtype(),
    })
}

fn refuse_what_is_not_built(fields: &Config) -> Result<(), ModelError> {
    match fields.size("expert_count") {
        Ok(Some(_)) => Err(fields.refuse("expert_count", "mixtures of experts are not supported")),
        _ => Ok(()),
    }
}

fn same_if_given(fields: &Config, field: &str, head_dim: usize) -> Result<(), ModelError> {
    match fields.size(field)? {
        Some(found) if found != head_dim => {
            Err(fields.refuse(field, format!("{found} is not supported; only the size of a head, {head_dim}, is")))
        }
        _ => Ok(()),
    }
}

/// The longest context. A shorter sliding window bounds it; one as long as the context has no effect.
fn max_context(fields: &Config) -> Result<usize, ModelError> {
    let context = fields.required_size("context_length")?;
    Ok(fields.size("attention.sliding_window")?.map_or(context, |window| context.min(window)))
}

fn rope(file: &GgufFile, fields: &Config, head_dim: usize) -> Result<RopeSpec, ModelError> {
    let theta = fields.positive("rope.freq_base")?.unwrap_or(10_000.0);
    if file.has(ROPE_FACTORS) {
        return Ok(RopeSpec { theta, scaling: RopeScaling::Factors(factors(file, head_dim)?) });
    }
    let scaling = match fields.text("rope.scaling.type")? {
        None | Some("none") => match fields.positive("rope.scale_linear")? {
            Some(factor) if factor != 1.0 => RopeScaling::Linear { factor },
            _ => RopeScaling::None,
        },
        Some("linear") => RopeScaling::Linear { factor: fields.required_positive("rope.scaling.factor")? },
        Some(other) => {
            let problem = format!("{other:?} is not supported; supported are none and linear");
            return Err(fields.refuse("rope.scaling.type", problem));
        }
    };
    Ok(RopeSpec { theta, scaling })
}

/// Factors for Llama 3's scaling, which the converter has computed.
fn factors(file: &GgufFile, head_dim: usize) -> Result<Vec<f32>, ModelError> {
    let view = file.tensor(ROPE_FACTORS)?;
    let refuse =
        |problem: String| ModelError::Tensor { file: file.file().into(), tensor: ROPE_FACTORS.into(), problem };
    if view.shape != [head_dim / 2] {
        return Err(refuse(format!(
            "heads of {head_dim} need shape [{}], the file has {:?}",
            head_dim / 2,
            view.shape
        )));
    }
    let factors = view.vector();
    match factors.iter().find(|factor| !(factor.is_finite() && **factor > 0.0)) {
        Some(factor) => Err(refuse(format!("expected positive numbers, got {factor}"))),
        None => Ok(factors),
    }
}

pub(super) fn tensor_name(part: Part) -> String {
    match part {
        Part::Embedding => "token_embd.weight".into(),
        Part::FinalNorm => "output_norm.weight".into(),
        Part::Head => "output.weight".into(),
        Part::Layer(layer, part) => format!("blk.{layer}.{}", layer_tensor_name(part)),
    }
}

fn layer_tensor_name(part: LayerPart) -> &'static str {
    match part {
        LayerPart::AttentionNorm => "attn_norm.weight",
        LayerPart::Q => "attn_q.weight",
        LayerPart::K => "attn_k.weight",
        LayerPart::V => "attn_v.weight",
        LayerPart::O => "attn_output.weight",
        LayerPart::QBias => "attn_q.bias",
        LayerPart::KBias => "attn_k.bias",
        LayerPart::VBias => "attn_v.bias",
        LayerPart::OBias => "attn_output.bias",
        LayerPart::QNorm => "attn_q_norm.weight",
        LayerPart::KNorm => "attn_k_norm.weight",
        LayerPart::FfnNorm => "ffn_norm.weight",
        LayerPart::Gate => "ffn_gate.weight",
        LayerPart::Up => "ffn_up.weight",
        LayerPart::Down => "ffn_down.weight",
        LayerPart::GateBias => "ffn_gate.bias",
        LayerPart::UpBias => "ffn_up.bias",
        LayerPart::DownBias => "ffn_down.bias",
    }
}
