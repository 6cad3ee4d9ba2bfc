//! Qwen3: Qwen2 with a norm of each head of q and k in place of the biases, and heads of a size of their own.

use super::Architecture;
use super::gguf;
use super::hugging_face::{self, Defaults};
use crate::gguf::GgufFile;
use crate::{Config, DecoderSpec, ModelError};

pub(super) struct Qwen3;

impl Architecture for Qwen3 {
    fn name(&self) -> &'static str {
        "Qwen3ForCausalLM"
    }

    fn decoder(&self, config: &Config) -> Result<DecoderSpec, ModelError> {
        hugging_face::refuse_sliding_window(config)?;
        let attention_bias = config.flag("attention_bias", false)?;
        let spec = hugging_face::decoder(config, &Defaults { max_context: 32_768, norm_eps: 1e-6 })?;
        let head_dim = config.size("head_dim")?.unwrap_or(128);
        Ok(DecoderSpec { qk_norm: true, qkv_bias: attention_bias, o_bias: attention_bias, head_dim, ..spec })
    }

    fn gguf_name(&self) -> &'static str {
        "qwen3"
    }

    fn gguf_decoder(&self, file: &GgufFile) -> Result<DecoderSpec, ModelError> {
        Ok(DecoderSpec { qk_norm: true, ..gguf::decoder(file, self.gguf_name())? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_have_norms_and_a_size_of_their_own() {
        for (fields, head_dim, bias) in [("", 128, false), (r#", "head_dim": 64, "attention_bias": true"#, 64, true)] {
            let json = format!(
                r#"{{"hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 6, "num_key_value_heads": 2,
                    "intermediate_size": 96, "vocab_size": 128{fields}}}"#
            );
            let spec = Qwen3.decoder(&Config::parse("config.json", json.as_bytes()).unwrap()).unwrap();
            assert_eq!((spec.qk_norm, spec.head_dim, spec.qkv_bias, spec.o_bias), (true, head_dim, bias, bias));
        }
    }
}
