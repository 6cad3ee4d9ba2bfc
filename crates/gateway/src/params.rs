//! What completions and chat have in common: how to sample, when to stop, how to answer.

use std::collections::BTreeMap;

use baton_core::{AffinityKey, SamplingParams, TokenId};
use baton_text::{ControlTokens, StopStrings};

use crate::card::ModelCard;
use crate::error::ApiError;
use crate::fields::{Fields, Interval};
use crate::json::{FromJson, Json, Mismatch, quoted};

pub(crate) const MAX_CHOICES: i64 = 128;
pub(crate) const MAX_LOGPROBS: i64 = 20;
const MAX_STOPS: usize = 16;
/// Matching takes nine bytes for each of them.
const MAX_STOP_BYTES: usize = 4096;

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
    pub(crate) affinity: Option<AffinityKey>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Delivery {
    Whole,
    Stream { include_usage: bool },
}

impl Params {
    pub(crate) fn take(fields: &mut Fields<'_>, card: &ModelCard) -> Result<Self, ApiError> {
        refuse(fields)?;
        let choices = fields.integer("n", 1..=MAX_CHOICES)?.unwrap_or(1);
        check_best_of(fields, choices)?;
        let params = Self {
            choices: choices as u32,
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
            affinity: affinity(fields)?,
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
pub(crate) fn check_model(fields: &mut Fields<'_>, card: &ModelCard) -> Result<(), ApiError> {
    match fields.take::<String>("model")? {
        Some(model) if model != card.id => Err(unknown_model(&model, card)),
        _ => Ok(()),
    }
}

pub(crate) fn unknown_model(model: &str, card: &ModelCard) -> ApiError {
    let message = format!("the model {} does not exist here; this server has {:?}", quoted(model), card.id);
    let status = axum::http::StatusCode::NOT_FOUND;
    ApiError { status, ..ApiError::invalid("model", message).with_code("model_not_found") }
}

/// Things other servers can do: ignoring them would give an answer the client did not request.
fn refuse(fields: &mut Fields<'_>) -> Result<(), ApiError> {
    let absent = |json: &Json<'_>| json.text() == "false" || json.is_empty();
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
        if fields.take_json(name).is_some_and(|json| !absent(&json)) {
            return Err(ApiError::invalid(name, format!("{name} is not supported by this server")));
        }
    }
    if let Some(format) = fields.take_json("response_format") {
        let mut format = Fields::of(format).map_err(|mismatch| mismatch.at("response_format"))?;
        if format.take_json("type").is_none_or(|kind| kind.text() != "\"text\"") {
            let message = "response_format: only the type \"text\" is supported";
            return Err(ApiError::invalid("response_format", message));
        }
    }
    Ok(())
}

/// To generate more than are requested and keep the best. Fewer mean nothing: MLC-LLM's clients send 1 beside any `n`.
fn check_best_of(fields: &mut Fields<'_>, choices: i64) -> Result<(), ApiError> {
    match fields.integer("best_of", 1..=i64::MAX)? {
        Some(best_of) if best_of > choices => {
            let message =
                format!("best_of is {best_of}, but n is {choices}: choices are not ranked, so best_of cannot exceed n");
            Err(ApiError::invalid("best_of", message))
        }
        _ => Ok(()),
    }
}

fn sampling(fields: &mut Fields<'_>, card: &ModelCard) -> Result<SamplingParams, ApiError> {
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
fn seed(fields: &mut Fields<'_>) -> Result<Option<u64>, ApiError> {
    let Some(json) = fields.take_json("seed") else { return Ok(None) };
    if let Ok(seed) = json.text().parse() {
        return Ok(Some(seed));
    }
    i64::from_json(json).map(|seed| Some(seed as u64)).map_err(|mismatch| mismatch.at("seed"))
}

fn logit_bias(fields: &mut Fields<'_>, card: &ModelCard) -> Result<Vec<(TokenId, f32)>, ApiError> {
    let mut biases = BTreeMap::new();
    if let Some(json) = fields.take_json("logit_bias") {
        let entries = json.each_member(|key, value| {
            let (token, bias) =
                bias(key, value, card).map_err(|mismatch| mismatch.inside(format_args!("[{}]", key.short())))?;
            biases.insert(token, bias);
            Ok(())
        });
        entries.map_err(|mismatch| mismatch.at("logit_bias"))?;
    }
    Ok(biases.into_iter().collect())
}

fn bias(key: Json<'_>, value: Json<'_>, card: &ModelCard) -> Result<(TokenId, f32), Mismatch> {
    const RANGE: Interval = Interval::Closed(-100.0, 100.0);
    let id: Option<i64> = key.text().trim_matches('"').parse().ok();
    let token = token_id(id.ok_or_else(|| Mismatch::new("the key must be a token id"))?, card)?;
    let bias = f64::from_json(value)?;
    if !RANGE.contains(bias) {
        return Err(Mismatch::new(format!("the bias must be {RANGE}, not {bias}")));
    }
    Ok((token, bias as f32))
}

fn stop_tokens(fields: &mut Fields<'_>, card: &ModelCard) -> Result<Vec<TokenId>, ApiError> {
    let ids = fields.take_json("stop_token_ids").map(|json| token_ids(json, card)).transpose();
    let mut stop_tokens = ids.map_err(|mismatch| mismatch.at("stop_token_ids"))?.unwrap_or_default();
    if !fields.flag("ignore_eos")? {
        stop_tokens.extend(&card.eos_tokens);
    }
    stop_tokens.sort_unstable();
    stop_tokens.dedup();
    Ok(stop_tokens)
}

fn stops(fields: &mut Fields<'_>) -> Result<StopStrings, ApiError> {
    let stops = match fields.take_json("stop") {
        None => Ok(Vec::new()),
        Some(json) if json.is_string() => String::from_json(json).map(|stop| vec![stop]),
        Some(json) => json.list(MAX_STOPS),
    };
    let stops = stops.map_err(|mismatch| mismatch.at("stop"))?;
    if stops.iter().any(|stop| stop.len() > MAX_STOP_BYTES) {
        return Err(ApiError::invalid("stop", format!("a stop string may have {MAX_STOP_BYTES} bytes at most")));
    }
    if stops.iter().any(String::is_empty) {
        return Err(ApiError::invalid("stop", "stop must not have an empty string"));
    }
    Ok(StopStrings::new(stops))
}

/// OpenAI's name for requests with a common beginning, or else the user's.
fn affinity(fields: &mut Fields<'_>) -> Result<Option<AffinityKey>, ApiError> {
    let (key, user) = (fields.take::<String>("prompt_cache_key")?, fields.take::<String>("user")?);
    Ok(key.or(user).filter(|name| !name.is_empty()).map(|name| AffinityKey::of(&name)))
}

fn delivery(fields: &mut Fields<'_>) -> Result<Delivery, ApiError> {
    let stream = fields.flag("stream")?;
    let Some(options) = fields.take_json("stream_options") else {
        return Ok(if stream { Delivery::Stream { include_usage: false } } else { Delivery::Whole });
    };
    if !stream {
        return Err(ApiError::invalid("stream_options", "stream_options is only allowed together with stream"));
    }
    let mut options = Fields::of(options).map_err(|mismatch| mismatch.at("stream_options"))?;
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

pub(crate) fn token_ids(json: Json<'_>, card: &ModelCard) -> Result<Vec<TokenId>, Mismatch> {
    let mut tokens = Vec::new();
    json.each_item(usize::MAX, |_, id| {
        tokens.push(token_id(i64::from_json(id)?, card)?);
        Ok(())
    })?;
    Ok(tokens)
}

/// JSON has no infinity: the smallest log-probability that is reported.
pub(crate) fn finite(logprob: f32) -> f32 {
    logprob.max(-9999.0)
}
