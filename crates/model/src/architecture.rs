//! What differs between architectures: what their configuration means and what their checkpoints call each weight.

mod common;
mod llama;
mod qwen2;

use serde_json::Value;

use crate::{Config, DecoderSpec, ModelError, Part};

pub trait Architecture: Send + Sync {
    /// As in `architectures` of config.json.
    fn name(&self) -> &'static str;

    fn decoder(&self, config: &Config) -> Result<DecoderSpec, ModelError>;

    fn tensor_name(&self, part: Part) -> String;
}

static SUPPORTED: [&dyn Architecture; 2] = [&llama::Llama, &qwen2::Qwen2];

pub fn supported_architectures() -> impl Iterator<Item = &'static str> {
    SUPPORTED.iter().map(|architecture| architecture.name())
}

pub(crate) fn find(config: &Config) -> Result<&'static dyn Architecture, ModelError> {
    const FIELD: &str = "architectures";
    let found = config.get(FIELD);
    let name = match found {
        Some(Value::Array(names)) => names.first().and_then(Value::as_str),
        _ => None,
    };
    let Some(name) = name else { return Err(config.wrong(FIELD, "a list of names", found)) };
    SUPPORTED.into_iter().find(|architecture| architecture.name() == name).ok_or_else(|| {
        let supported = supported_architectures().collect::<Vec<_>>().join(", ");
        config.refuse(FIELD, format!("{name:?} is not supported; supported are {supported}"))
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
                "\"MambaForCausalLM\" is not supported; supported are LlamaForCausalLM, Qwen2ForCausalLM",
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
