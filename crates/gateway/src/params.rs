//! What completions and chat have in common: how to sample, when to stop, how to answer.

use std::collections::BTreeMap;

use baton_core::{SamplingParams, TokenId};
use baton_text::{ControlTokens, StopStrings};
use serde_json::{Map, Value};

use crate::card::ModelCard;
use crate::error::ApiError;
use crate::fields::{Fields, FromJson, Interval, Mismatch};

pub(crate) const MAX_CHOICES: i64 = 128;
pub(crate) const MAX_LOGPROBS: i64 = 20;
const MAX_STOPS: usize = 16;

pub(crate) struct Params {
    pub(crate) choices: u32,
    /// Its seed is still to be set, per prompt.
    pub(crate) sampling: SamplingParams,
    /// `None`: drawn when the request is admitted.
    pub(crate) seed: Option<u64>,
    pub(crate) min_tokens: u32,
    pub(crate) stop_tokens: Vec<TokenId>,
    pub(crate) stops: StopStrings,
    /// The stop string or stop token becomes part of the text.
    pub(crate) include_stop: bool,
    pub(crate) control: ControlTokens,
    pub(crate) delivery: Delivery,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Delivery {
    Whole,
    Stream { include_usage: bool },
}

impl Params {
    pub(crate) fn take(fields: &mut Fields, card: &ModelCard) -> Result<Self, ApiError> {
        refuse(fields)?;
        let _user: Option<String> = fields.take("user")?;
        let params = Self {
            choices: fields.integer("n", 1..=MAX_CHOICES)?.unwrap_or(1) as u32,
            sampling: sampling(fields, card)?,
            seed: seed(fields)?,
            min_tokens: fields.integer("min_tokens", 0..=u32::MAX.into())?.unwrap_or(0) as u32,
            stop_tokens: stop_tokens(fields, card)?,
            stops: stops(fields)?,
            include_stop: fields.flag("include_stop_str_in_output")?,
            control: match fields.take("skip_special_tokens")? {
                Some(false) => ControlTokens::Show,
                _ => ControlTokens::Hide,
            },
            delivery: delivery(fields)?,
        };
        if params.min_tokens > 0 && params.stop_tokens.len() >= card.vocab_size as usize {
            let message = "stop_token_ids names every token, so min_tokens leaves none to generate";
            return Err(ApiError::invalid("stop_token_ids", message));
        }
        Ok(params)
    }

    pub(crate) fn check_min_tokens(&self, max_tokens: Option<u32>) -> Result<(), ApiError> {
        match max_tokens {
            Some(max) if self.min_tokens > max => {
                let message = format!("min_tokens is {}, more than max_tokens, which is {max}", self.min_tokens);
                Err(ApiError::invalid("min_tokens", message))
            }
            _ => Ok(()),
        }
    }
}

/// Refuses a request for a model that is not served here; no name means the one that is.
pub(crate) fn check_model(fields: &mut Fields, card: &ModelCard) -> Result<(), ApiError> {
    match fields.take::<String>("model")? {
        Some(model) if model != card.id => Err(unknown_model(&model, card)),
        _ => Ok(()),
    }
}

pub(crate) fn unknown_model(model: &str, card: &ModelCard) -> ApiError {
    let message = format!("the model {model:?} does not exist here; this server has {:?}", card.id);
    let status = axum::http::StatusCode::NOT_FOUND;
    ApiError { status, ..ApiError::invalid("model", message).with_code("model_not_found") }
}

/// Things other servers can do: ignoring them would give an answer the client did not ask for.
fn refuse(fields: &mut Fields) -> Result<(), ApiError> {
    let absent = |value: &Value| match value {
        Value::Bool(asked) => !asked,
        Value::Array(items) => items.is_empty(),
        Value::Object(items) => items.is_empty(),
        _ => false,
    };
    for name in [
        "use_beam_search",
        "structured_outputs",
        "guided_json",
        "guided_regex",
        "guided_choice",
        "guided_grammar",
        "prompt_embeds",
        "logits_processors",
        "bad_words",
        "truncate_prompt_tokens",
    ] {
        if fields.take::<Value>(name)?.is_some_and(|value| !absent(&value)) {
            return Err(ApiError::invalid(name, format!("{name} is not supported by this server")));
        }
    }
    if let Some(format) = fields.take::<Map<String, Value>>("response_format")?
        && format.get("type").and_then(Value::as_str) != Some("text")
    {
        return Err(ApiError::invalid("response_format", "response_format: only the type \"text\" is supported"));
    }
    Ok(())
}

fn sampling(fields: &mut Fields, card: &ModelCard) -> Result<SamplingParams, ApiError> {
    let defaults = &card.defaults;
    Ok(SamplingParams {
        temperature: fields.number("temperature", Interval::Closed(0.0, 2.0))?.unwrap_or(defaults.temperature),
        top_p: fields.number("top_p", Interval::Above(0.0, 1.0))?.unwrap_or(defaults.top_p),
        top_k: match fields.integer("top_k", -1..=u32::MAX.into())? {
            Some(-1 | 0) => None,
            Some(count) => Some(count as u32),
            None => defaults.top_k,
        },
        min_p: fields.number("min_p", Interval::Closed(0.0, 1.0))?.unwrap_or(defaults.min_p),
        presence_penalty: fields.number("presence_penalty", Interval::Closed(-2.0, 2.0))?.unwrap_or(0.0),
        frequency_penalty: fields.number("frequency_penalty", Interval::Closed(-2.0, 2.0))?.unwrap_or(0.0),
        repetition_penalty: fields
            .number("repetition_penalty", Interval::Closed(0.01, 10.0))?
            .unwrap_or(defaults.repetition_penalty),
        logit_bias: logit_bias(fields, card)?,
        seed: 0,
    })
}

/// Every integer that fits 64 bits is a seed.
fn seed(fields: &mut Fields) -> Result<Option<u64>, ApiError> {
    match fields.take::<Value>("seed")? {
        Some(Value::Number(number)) if number.is_u64() => Ok(number.as_u64()),
        Some(value) => i64::from_json(value).map(|seed| Some(seed as u64)).map_err(|mismatch| mismatch.at("seed")),
        None => Ok(None),
    }
}

fn logit_bias(fields: &mut Fields, card: &ModelCard) -> Result<Vec<(TokenId, f32)>, ApiError> {
    const RANGE: Interval = Interval::Closed(-100.0, 100.0);
    let mut biases = BTreeMap::new();
    for (key, value) in fields.take::<Map<String, Value>>("logit_bias")?.unwrap_or_default() {
        let wrong = |mismatch: Mismatch| mismatch.inside(format_args!("[{key:?}]")).at("logit_bias");
        let id: i64 = key.parse().map_err(|_| wrong(Mismatch::new("the key must be a token id")))?;
        let token = token_id(id, card).map_err(wrong)?;
        let bias = f64::from_json(value).map_err(wrong)?;
        if !RANGE.contains(bias) {
            return Err(wrong(Mismatch::new(format!("the bias must be {RANGE}, not {bias}"))));
        }
        biases.insert(token, bias as f32);
    }
    Ok(biases.into_iter().collect())
}

fn stop_tokens(fields: &mut Fields, card: &ModelCard) -> Result<Vec<TokenId>, ApiError> {
    let asked: Vec<i64> = fields.take("stop_token_ids")?.unwrap_or_default();
    let mut stop_tokens = token_ids(asked, card).map_err(|mismatch| mismatch.at("stop_token_ids"))?;
    if !fields.flag("ignore_eos")? {
        stop_tokens.extend(&card.eos_tokens);
    }
    stop_tokens.sort_unstable();
    stop_tokens.dedup();
    Ok(stop_tokens)
}

fn stops(fields: &mut Fields) -> Result<StopStrings, ApiError> {
    let stops = match fields.take::<Value>("stop")? {
        None => Vec::new(),
        Some(Value::String(stop)) => vec![stop],
        Some(list) => Vec::<String>::from_json(list).map_err(|mismatch| mismatch.at("stop"))?,
    };
    if stops.len() > MAX_STOPS {
        let message = format!("stop may have {MAX_STOPS} strings at most, not {}", stops.len());
        return Err(ApiError::invalid("stop", message));
    }
    if stops.iter().any(String::is_empty) {
        return Err(ApiError::invalid("stop", "stop must not have an empty string"));
    }
    Ok(StopStrings::new(stops))
}

fn delivery(fields: &mut Fields) -> Result<Delivery, ApiError> {
    let stream = fields.flag("stream")?;
    let Some(options) = fields.take::<Map<String, Value>>("stream_options")? else {
        return Ok(if stream { Delivery::Stream { include_usage: false } } else { Delivery::Whole });
    };
    if !stream {
        return Err(ApiError::invalid("stream_options", "stream_options is only allowed together with stream"));
    }
    let mut options = Fields::new(options);
    let include_usage = options
        .flag("include_usage")
        .map_err(|error| ApiError::invalid("stream_options", format!("stream_options.{}", error.message)))?;
    Ok(Delivery::Stream { include_usage })
}

/// The only way from a client's number to a token.
pub(crate) fn token_id(id: i64, card: &ModelCard) -> Result<TokenId, Mismatch> {
    match u32::try_from(id) {
        Ok(token) if token < card.vocab_size => Ok(TokenId(token)),
        _ => Err(Mismatch::new(format!("{id} is not a token id: the vocabulary has {} tokens", card.vocab_size))),
    }
}

pub(crate) fn token_ids(ids: Vec<i64>, card: &ModelCard) -> Result<Vec<TokenId>, Mismatch> {
    let ids = ids.into_iter().enumerate();
    ids.map(|(at, id)| token_id(id, card).map_err(|mismatch| mismatch.inside(format_args!("[{at}]")))).collect()
}

/// JSON has no infinity: the smallest log-probability anyone is told.
pub(crate) fn finite(logprob: f32) -> f32 {
    logprob.max(-9999.0)
}
