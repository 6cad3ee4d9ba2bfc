//! Llama 2 and 3, and other models of this architecture (SmolLM2, TinyLlama, …).

use super::hugging_face::{self, Defaults};
use super::{Architecture, gguf};
use crate::gguf::GgufFile;
use crate::{Config, DecoderSpec, LayerPart, ModelError, Part, RowOrder};

pub(super) struct Llama;

impl Architecture for Llama {
    fn name(&self) -> &'static str {
        "LlamaForCausalLM"
    }

    fn decoder(&self, config: &Config) -> Result<DecoderSpec, ModelError> {
        let attention_bias = config.flag("attention_bias", false)?;
        Ok(DecoderSpec {
            qkv_bias: attention_bias,
            o_bias: attention_bias,
            mlp_bias: config.flag("mlp_bias", false)?,
            ..hugging_face::decoder(config, &Defaults { max_context: 2048, norm_eps: 1e-6 })?
        })
    }

    fn gguf_name(&self) -> &'static str {
        "llama"
    }

    fn gguf_decoder(&self, file: &GgufFile) -> Result<DecoderSpec, ModelError> {
        gguf::decoder(file, self.gguf_name())
    }

    /// llama.cpp rotates adjacent dimensions for this architecture, so its converter reorders rows that are half a head apart.
    fn gguf_rows(&self, spec: &DecoderSpec, part: Part) -> RowOrder {
        use LayerPart as P;
        match part {
            Part::Layer(_, P::Q | P::K | P::QBias | P::KBias) => RowOrder::PairsTogether { head_dim: spec.head_dim },
            _ => RowOrder::Plain,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Dtype, RopeScaling, RopeSpec};

    const LEAST: &str = r#""hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 6,
        "intermediate_size": 96, "vocab_size": 128"#;

    fn decoder(fields: &str) -> Result<DecoderSpec, String> {
        // Of two fields with one name the last counts, so `fields` overrides.
        let config = Config::parse("config.json", format!("{{{LEAST}{fields}}}").as_bytes()).unwrap();
        Llama.decoder(&config).map_err(|error| error.to_string())
    }

    #[test]
    fn defaults_are_those_of_transformers() {
        let expected = DecoderSpec {
            hidden: 48,
            layers: 2,
            heads: 6,
            kv_heads: 6,
            head_dim: 8,
            ffn: 96,
            vocab: 128,
            max_context: 2048,
            norm_eps: 1e-6,
            rope: RopeSpec { theta: 10_000.0, scaling: RopeScaling::None },
            tied_head: false,
            qkv_bias: false,
            o_bias: false,
            mlp_bias: false,
            qk_norm: false,
            dtype: Dtype::F32,
        };
        assert_eq!(decoder("").unwrap(), expected);
        let spec = decoder(
            r#", "num_key_value_heads": 2, "head_dim": 16, "attention_bias": true, "mlp_bias": true,
                "tie_word_embeddings": true, "max_position_embeddings": 4096, "rms_norm_eps": 1e-5, "torch_dtype": "float16""#,
        );
        let expected = DecoderSpec {
            kv_heads: 2,
            head_dim: 16,
            qkv_bias: true,
            o_bias: true,
            mlp_bias: true,
            tied_head: true,
            max_context: 4096,
            norm_eps: 1e-5,
            dtype: Dtype::F16,
            ..expected
        };
        assert_eq!(spec.unwrap(), expected);
        assert_eq!(decoder(r#", "dtype": "bfloat16", "torch_dtype": "float32""#).unwrap().dtype, Dtype::Bf16);
    }

    #[test]
    fn what_cannot_be_a_decoder_is_named() {
        let table = [
            (r#""num_attention_heads": "six""#, r#"num_attention_heads: expected a positive integer, got "six""#),
            (r#""num_attention_heads": 0"#, "num_attention_heads: expected a positive integer, got 0"),
            (r#""num_attention_heads": 5"#, "hidden_size: expected a multiple of num_attention_heads 5, got 48"),
            (r#""num_attention_heads": 16"#, "hidden_size: gives heads of 3 dimensions; rotation needs an even number"),
            (r#""head_dim": 7"#, "head_dim: gives heads of 7 dimensions; rotation needs an even number"),
            (r#""head_dim": 2000000000"#, "head_dim: 6 heads of 2000000000 dimensions are too many"),
            (r#""num_key_value_heads": 4"#, "num_key_value_heads: expected a divisor of num_attention_heads 6, got 4"),
            (
                r#""num_key_value_heads": 12"#,
                "num_key_value_heads: expected a divisor of num_attention_heads 6, got 12",
            ),
            (r#""hidden_size": null"#, "hidden_size: expected a positive integer, got nothing"),
            (r#""num_hidden_layers": 1e30"#, "num_hidden_layers: expected a positive integer, got 1e+30"),
            (r#""vocab_size": 99999999999"#, "vocab_size: expected at most 2147483647, got 99999999999"),
            (r#""rms_norm_eps": 0"#, "rms_norm_eps: expected a positive number, got 0"),
            (r#""hidden_act": "gelu""#, r#"hidden_act: "gelu" is not supported; only "silu" is"#),
            (r#""mlp_bias": "no""#, r#"mlp_bias: expected true or false, got "no""#),
            (r#""quantization_config": {}"#, "quantization_config: quantized checkpoints are not supported"),
            (
                r#""torch_dtype": "float8_e4m3fn""#,
                r#"torch_dtype: "float8_e4m3fn" is not supported; supported are float32, float16, bfloat16"#,
            ),
        ];
        for (field, message) in table {
            assert_eq!(decoder(&format!(", {field}")).unwrap_err(), format!("config.json: {message}"));
        }
    }
}
