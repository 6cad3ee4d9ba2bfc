//! Mistral 7B and similar models: Llama with a sliding window. The window has no effect on a context that fits into it, so the
//! context is limited to its length. In GGUF files this architecture is called Llama.

use super::hugging_face::{self, Defaults};
use super::{Architecture, llama};
use crate::gguf::GgufFile;
use crate::{Config, DecoderSpec, ModelError};

pub(super) struct Mistral;

impl Architecture for Mistral {
    fn name(&self) -> &'static str {
        "MistralForCausalLM"
    }

    fn decoder(&self, config: &Config) -> Result<DecoderSpec, ModelError> {
        let spec = hugging_face::decoder(config, &Defaults { max_context: 131_072, norm_eps: 1e-6 })?;
        let window = config.size("sliding_window")?.unwrap_or(usize::MAX);
        Ok(DecoderSpec { max_context: spec.max_context.min(window), ..spec })
    }

    fn gguf_name(&self) -> &'static str {
        llama::Llama.gguf_name()
    }

    fn gguf_decoder(&self, file: &GgufFile) -> Result<DecoderSpec, ModelError> {
        llama::Llama.gguf_decoder(file)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_context_is_no_longer_than_the_window() {
        for (window, context) in [("null", 32_768), ("4096", 4096), ("65536", 32_768)] {
            let json = format!(
                r#"{{"hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 6, "num_key_value_heads": 2,
                    "intermediate_size": 96, "vocab_size": 128, "max_position_embeddings": 32768,
                    "sliding_window": {window}}}"#
            );
            let spec = Mistral.decoder(&Config::parse("config.json", json.as_bytes()).unwrap()).unwrap();
            assert_eq!((spec.max_context, spec.head_dim), (context, 8), "{window}");
        }
    }
}
