//! The parts of tokenizer_config.json that are used: the names of special tokens, and the chat template.

use serde::Deserialize;

use crate::TextError;

const FILE: &str = "tokenizer_config.json";

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TokenizerConfig {
    pub bos_token: Option<String>,
    pub eos_token: Option<String>,
    pub chat_template: Option<String>,
}

impl TokenizerConfig {
    pub fn from_json(json: &[u8]) -> Result<Self, TextError> {
        let file: File = serde_json::from_slice(json).map_err(|error| TextError::file(FILE, error))?;
        Ok(Self {
            bos_token: file.bos_token.map(Special::into_content),
            eos_token: file.eos_token.map(Special::into_content),
            chat_template: file.chat_template.map(Templates::into_default).transpose()?,
        })
    }
}

#[derive(Deserialize)]
struct File {
    bos_token: Option<Special>,
    eos_token: Option<Special>,
    chat_template: Option<Templates>,
}

/// Older files spell special tokens out with all their attributes.
#[derive(Deserialize)]
#[serde(untagged, expecting = "a special token is a string or an object with the field content")]
enum Special {
    Content(String),
    Spelled { content: String },
}

impl Special {
    fn into_content(self) -> String {
        match self {
            Self::Content(content) | Self::Spelled { content } => content,
        }
    }
}

#[derive(Deserialize)]
#[serde(untagged, expecting = "chat_template is a string or a list of {name, template}")]
enum Templates {
    One(String),
    Named(Vec<Named>),
}

#[derive(Deserialize)]
struct Named {
    name: String,
    template: String,
}

impl Templates {
    fn into_default(self) -> Result<String, TextError> {
        match self {
            Self::One(template) => Ok(template),
            Self::Named(all) => all
                .into_iter()
                .find(|named| named.name == "default")
                .map(|named| named.template)
                .ok_or_else(|| TextError::file(FILE, "chat_template is a list without an entry named default")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_spelling_is_understood() {
        let table = [
            (r#"{}"#, (None, None)),
            (r#"{"bos_token": null, "chat_template": "x"}"#, (None, Some("x"))),
            (r#"{"bos_token": "<s>", "model_max_length": 1e30}"#, (Some("<s>"), None)),
            (r#"{"bos_token": {"__type": "AddedToken", "content": "<s>", "lstrip": false}}"#, (Some("<s>"), None)),
            (
                r#"{"chat_template": [{"name": "rag", "template": "r"}, {"name": "default", "template": "d"}]}"#,
                (None, Some("d")),
            ),
        ];
        for (json, (bos, template)) in table {
            let config = TokenizerConfig::from_json(json.as_bytes()).unwrap();
            assert_eq!((config.bos_token.as_deref(), config.chat_template.as_deref()), (bos, template), "{json}");
        }
    }

    #[test]
    fn errors_name_file_and_field() {
        for (json, part) in [
            ("{", "EOF"),
            (r#"{"bos_token": 5}"#, "special token"),
            (r#"{"chat_template": 5}"#, "chat_template"),
            (r#"{"chat_template": [{"name": "rag", "template": "r"}]}"#, "default"),
        ] {
            let error = TokenizerConfig::from_json(json.as_bytes()).unwrap_err().to_string();
            assert!(error.starts_with("tokenizer_config.json: ") && error.contains(part), "{error}");
        }
    }
}
