//! How a model is sampled when a request leaves it open, and which tokens end a text.

use baton_core::TokenId;
use serde_json::Value;

use crate::{Config, ModelError};

#[derive(Clone, Debug, PartialEq)]
pub struct GenerationConfig {
    pub sampling: Sampling,
    pub source: SamplingSource,
    pub max_new_tokens: Option<u32>,
    /// Ascending, each once.
    pub eos_token_ids: Vec<TokenId>,
}

/// The defaults of requests that leave a field out.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sampling {
    /// 0 when the model's makers turn sampling off.
    pub temperature: f32,
    pub top_p: f32,
    pub top_k: Option<u32>,
    pub min_p: f32,
    pub repetition_penalty: f32,
}

/// Who decided about [`Sampling`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SamplingSource {
    /// The model's files: generation_config.json, or `general.sampling.*` of a GGUF file.
    Model,
    /// Its makers, elsewhere: see `recommended.rs`.
    Makers,
    /// None of these; as llama.cpp does with a GGUF file then.
    LlamaCpp,
    /// None of these.
    Neutral,
}

impl SamplingSource {
    pub fn name(self) -> &'static str {
        match self {
            Self::Model => "model",
            Self::Makers => "makers",
            Self::LlamaCpp => "llama.cpp",
            Self::Neutral => "neutral",
        }
    }
}

impl Sampling {
    /// Draws from the distribution as the model gives it.
    pub const NEUTRAL: Self = Self { temperature: 1.0, top_p: 1.0, top_k: None, min_p: 0.0, repetition_penalty: 1.0 };

    /// Of `common_params_sampling` in llama.cpp's common/common.h.
    pub const LLAMA_CPP: Self =
        Self { temperature: 0.8, top_p: 0.95, top_k: Some(40), min_p: 0.05, repetition_penalty: 1.0 };
}

/// A file's sampling defaults, each of which it may leave out.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Stated {
    pub(crate) temperature: Option<f64>,
    pub(crate) top_p: Option<f64>,
    /// 0: all tokens.
    pub(crate) top_k: Option<u32>,
    pub(crate) min_p: Option<f64>,
    pub(crate) repetition_penalty: Option<f64>,
}

impl Stated {
    /// Of generation_config.json.
    fn read(fields: &Config) -> Result<Self, ModelError> {
        let temperature = fields.number("temperature", "a number of at least 0", |number| number >= 0.0)?;
        Ok(Self {
            temperature: if fields.flag("do_sample", true)? { temperature } else { Some(0.0) },
            top_p: fields.number("top_p", "a number in (0, 1]", |number| number > 0.0 && number <= 1.0)?,
            top_k: top_k(fields)?,
            min_p: fields.number("min_p", "a number in [0, 1]", |number| (0.0..=1.0).contains(&number))?,
            repetition_penalty: fields.positive("repetition_penalty")?,
        })
    }

    /// What is left out is neutral; `None` where all of it is left out.
    fn sampling(&self) -> Option<Sampling> {
        let number = |stated: Option<f64>, neutral: f32| stated.map_or(neutral, |number| number as f32);
        (*self != Self::default()).then(|| Sampling {
            temperature: number(self.temperature, Sampling::NEUTRAL.temperature),
            top_p: number(self.top_p, Sampling::NEUTRAL.top_p),
            top_k: self.top_k.filter(|count| *count > 0),
            min_p: number(self.min_p, Sampling::NEUTRAL.min_p),
            repetition_penalty: number(self.repetition_penalty, Sampling::NEUTRAL.repetition_penalty),
        })
    }
}

impl GenerationConfig {
    /// From generation_config.json, if there is one; the end-of-sequence ids may stand in config.json instead.
    pub(crate) fn read(config: &Config, generation: Option<&Config>) -> Result<Self, ModelError> {
        let eos_token_ids = match generation {
            Some(generation) if generation.get("eos_token_id").is_some() => eos_token_ids(generation)?,
            _ => eos_token_ids(config)?,
        };
        let Some(fields) = generation else { return Ok(Self::new(&Stated::default(), None, eos_token_ids)) };
        let max_new_tokens = fields.size("max_new_tokens")?.map(|tokens| tokens as u32);
        Ok(Self::new(&Stated::read(fields)?, max_new_tokens, eos_token_ids))
    }

    pub(crate) fn new(stated: &Stated, max_new_tokens: Option<u32>, eos_token_ids: Vec<TokenId>) -> Self {
        let (sampling, source) = match stated.sampling() {
            Some(sampling) => (sampling, SamplingSource::Model),
            None => (Sampling::NEUTRAL, SamplingSource::Neutral),
        };
        Self { sampling, source, max_new_tokens, eos_token_ids }
    }
}

/// transformers writes 0 for "all".
fn top_k(fields: &Config) -> Result<Option<u32>, ModelError> {
    match fields.get("top_k") {
        Some(Value::Number(number)) if number.as_u64() == Some(0) => Ok(Some(0)),
        _ => Ok(fields.size("top_k")?.map(|count| count as u32)),
    }
}

fn eos_token_ids(fields: &Config) -> Result<Vec<TokenId>, ModelError> {
    const FIELD: &str = "eos_token_id";
    let found = fields.get(FIELD);
    let values = match found {
        None => return Ok(Vec::new()),
        Some(Value::Array(values)) => values.as_slice(),
        Some(value) => std::slice::from_ref(value),
    };
    let mut ids = values
        .iter()
        .map(|value| value.as_u64().and_then(|id| u32::try_from(id).ok()).map(TokenId))
        .collect::<Option<Vec<_>>>()
        .ok_or_else(|| fields.wrong(FIELD, "a token id or a list of them", found))?;
    ids.sort_unstable();
    ids.dedup();
    Ok(ids)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(config: &str, generation: Option<&str>) -> Result<GenerationConfig, String> {
        let config = Config::parse("config.json", config.as_bytes()).unwrap();
        let generation = generation.map(|json| Config::parse("generation_config.json", json.as_bytes()).unwrap());
        GenerationConfig::read(&config, generation.as_ref()).map_err(|error| error.to_string())
    }

    #[test]
    fn temperature_follows_do_sample() {
        let table = [
            (None, 1.0),
            (Some("{}"), 1.0),
            (Some(r#"{"temperature": 0.7}"#), 0.7),
            (Some(r#"{"do_sample": true}"#), 1.0),
            (Some(r#"{"do_sample": true, "temperature": 0.6}"#), 0.6),
            (Some(r#"{"do_sample": false, "temperature": 0.6}"#), 0.0),
            (Some(r#"{"temperature": 0}"#), 0.0),
        ];
        for (json, temperature) in table {
            assert_eq!(read("{}", json).unwrap().sampling.temperature, temperature, "{json:?}");
        }
    }

    #[test]
    fn only_what_is_said_about_sampling_counts_as_the_models() {
        for (json, source) in [
            (None, SamplingSource::Neutral),
            (Some("{}"), SamplingSource::Neutral),
            (Some(r#"{"do_sample": true, "max_new_tokens": 9, "top_p": null}"#), SamplingSource::Neutral),
            (Some(r#"{"do_sample": false}"#), SamplingSource::Model),
            (Some(r#"{"temperature": 1.0}"#), SamplingSource::Model),
            (Some(r#"{"top_k": 0}"#), SamplingSource::Model),
            (Some(r#"{"repetition_penalty": 1.1}"#), SamplingSource::Model),
        ] {
            assert_eq!(read("{}", json).unwrap().source, source, "{json:?}");
        }
    }

    #[test]
    fn end_of_sequence_is_an_id_or_a_list_in_either_file() {
        let table = [
            ("{}", None, vec![]),
            (r#"{"eos_token_id": 2}"#, None, vec![2]),
            (r#"{"eos_token_id": 2}"#, Some("{}"), vec![2]),
            (r#"{"eos_token_id": 2}"#, Some(r#"{"eos_token_id": [9, 4, 9]}"#), vec![4, 9]),
            (r#"{"eos_token_id": null}"#, Some(r#"{"eos_token_id": 0}"#), vec![0]),
        ];
        for (config, generation, ids) in table {
            let read = read(config, generation).unwrap().eos_token_ids;
            assert_eq!(read, ids.into_iter().map(TokenId).collect::<Vec<_>>(), "{config} {generation:?}");
        }
    }

    #[test]
    fn every_field_is_read() {
        let json = r#"{"top_p": 0.8, "top_k": 20, "min_p": 0.1, "repetition_penalty": 1.05, "max_new_tokens": 64}"#;
        let read_config = read("{}", Some(json)).unwrap();
        assert_eq!(
            read_config,
            GenerationConfig {
                sampling: Sampling {
                    temperature: 1.0,
                    top_p: 0.8,
                    top_k: Some(20),
                    min_p: 0.1,
                    repetition_penalty: 1.05,
                },
                source: SamplingSource::Model,
                max_new_tokens: Some(64),
                eos_token_ids: vec![],
            }
        );
        assert_eq!(read("{}", Some(r#"{"top_k": 0}"#)).unwrap().sampling.top_k, None);
    }

    #[test]
    fn bad_values_are_named() {
        let table = [
            (r#"{"temperature": -1}"#, "temperature: expected a number of at least 0, got -1"),
            (r#"{"top_p": 0}"#, "top_p: expected a number in (0, 1], got 0"),
            (r#"{"top_p": "all"}"#, "top_p: expected a number in (0, 1], got \"all\""),
            (r#"{"top_k": -1}"#, "top_k: expected a positive integer, got -1"),
            (r#"{"min_p": 2}"#, "min_p: expected a number in [0, 1], got 2"),
            (r#"{"do_sample": 1}"#, "do_sample: expected true or false, got 1"),
            (r#"{"repetition_penalty": 0}"#, "repetition_penalty: expected a positive number, got 0"),
            (r#"{"eos_token_id": [-1]}"#, "eos_token_id: expected a token id or a list of them, got [-1]"),
        ];
        for (json, message) in table {
            assert_eq!(read("{}", Some(json)).unwrap_err(), format!("generation_config.json: {message}"));
        }
    }
}
