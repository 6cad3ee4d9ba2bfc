//! Qwen2 and Qwen2.5: Llama with biases on q, k and v, never on o.

use super::hugging_face::{self, Defaults};
use super::{Architecture, gguf};
use crate::gguf::GgufFile;
use crate::{Config, DecoderSpec, ModelError};

pub(super) struct Qwen2;

impl Architecture for Qwen2 {
    fn name(&self) -> &'static str {
        "Qwen2ForCausalLM"
    }

    fn decoder(&self, config: &Config) -> Result<DecoderSpec, ModelError> {
        hugging_face::refuse_sliding_window(config)?;
        let defaults = Defaults { max_context: 32_768, norm_eps: 1e-6 };
        Ok(DecoderSpec { qkv_bias: true, ..hugging_face::decoder(config, &defaults)? })
    }

    fn gguf_name(&self) -> &'static str {
        "qwen2"
    }

    fn gguf_decoder(&self, file: &GgufFile) -> Result<DecoderSpec, ModelError> {
        Ok(DecoderSpec { qkv_bias: true, ..gguf::decoder(file, self.gguf_name())? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decoder(fields: &str) -> Result<DecoderSpec, String> {
        let json = format!(
            r#"{{"hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 6, "num_key_value_heads": 2,
                "intermediate_size": 96, "vocab_size": 128{fields}}}"#
        );
        Qwen2.decoder(&Config::parse("config.json", json.as_bytes()).unwrap()).map_err(|error| error.to_string())
    }

    #[test]
    fn only_q_k_and_v_have_biases() {
        let spec = decoder(r#", "use_sliding_window": false, "layer_types": ["full_attention", "full_attention"]"#);
        let spec = spec.unwrap();
        assert_eq!((spec.qkv_bias, spec.o_bias, spec.mlp_bias, spec.max_context), (true, false, false, 32_768));
    }

    #[test]
    fn sliding_windows_are_refused() {
        let table = [
            (r#", "use_sliding_window": true"#, "use_sliding_window: true is not supported"),
            (
                r#", "layer_types": ["full_attention", "sliding_attention"]"#,
                r#"layer_types: "sliding_attention" is not supported; only "full_attention" is"#,
            ),
        ];
        for (fields, message) in table {
            assert_eq!(decoder(fields).unwrap_err(), format!("config.json: {message}"));
        }
    }
}
