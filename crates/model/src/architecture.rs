//! Differences between architectures: how their configuration is read, and the names of their weights, in both formats.

mod common;
mod gguf;
mod hugging_face;
mod llama;
mod mistral;
mod qwen2;
mod qwen3;

use serde_json::Value;

use crate::gguf::GgufFile;
use crate::{Config, DecoderSpec, ModelError, Part, RowOrder};

pub(crate) trait Architecture: Send + Sync {
    /// The name in `architectures` of config.json.
    fn name(&self) -> &'static str;

    fn decoder(&self, config: &Config) -> Result<DecoderSpec, ModelError>;

    fn tensor_name(&self, part: Part) -> String {
        hugging_face::tensor_name(part)
    }

    /// The name in `general.architecture` of a GGUF file.
    fn gguf_name(&self) -> &'static str;

    fn gguf_decoder(&self, file: &GgufFile) -> Result<DecoderSpec, ModelError>;

    fn gguf_tensor_name(&self, part: Part) -> String {
        gguf::tensor_name(part)
    }

    fn gguf_rows(&self, _spec: &DecoderSpec, _part: Part) -> RowOrder {
        RowOrder::Plain
    }
}

static SUPPORTED: [&dyn Architecture; 4] = [&llama::Llama, &mistral::Mistral, &qwen2::Qwen2, &qwen3::Qwen3];

pub(crate) fn find(config: &Config) -> Result<&'static dyn Architecture, ModelError> {
    const FIELD: &str = "architectures";
    let found = config.get(FIELD);
    let name = match found {
        Some(Value::Array(names)) => names.first().and_then(Value::as_str),
        _ => None,
    };
    let Some(name) = name else { return Err(config.wrong(FIELD, "a list of names", found)) };
    SUPPORTED.into_iter().find(|architecture| architecture.name() == name).ok_or_else(|| {
        let supported = SUPPORTED.map(|architecture| architecture.name()).join(", ");
        config.refuse(FIELD, format!("{name:?} is not supported; supported are {supported}"))
    })
}

pub(crate) fn find_gguf(file: &GgufFile) -> Result<&'static dyn Architecture, ModelError> {
    const FIELD: &str = "general.architecture";
    let values = file.values();
    let Some(name) = values.text(FIELD)? else { return Err(values.wrong(FIELD, "a name", None)) };
    SUPPORTED.into_iter().find(|architecture| architecture.gguf_name() == name).ok_or_else(|| {
        let mut supported = SUPPORTED.map(|architecture| architecture.gguf_name()).to_vec();
        supported.dedup();
        values.refuse(FIELD, format!("{name:?} is not supported; supported are {}", supported.join(", ")))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_architectures_get_the_list_of_known_ones() {
        let table = [
            (
                r#"{"architectures": ["MambaForCausalLM"]}"#,
                "\"MambaForCausalLM\" is not supported; supported are LlamaForCausalLM, MistralForCausalLM, \
                 Qwen2ForCausalLM, Qwen3ForCausalLM",
            ),
            ("{}", "expected a list of names, got nothing"),
            (r#"{"architectures": []}"#, "expected a list of names, got []"),
            (r#"{"architectures": "LlamaForCausalLM"}"#, "expected a list of names, got \"LlamaForCausalLM\""),
        ];
        for (json, message) in table {
            let error = find(&Config::parse("config.json", json.as_bytes()).unwrap()).err().unwrap();
            assert_eq!(error.to_string(), format!("config.json: architectures: {message}"));
        }
    }
}
