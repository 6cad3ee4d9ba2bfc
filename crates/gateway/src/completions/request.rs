//! What a client asks of `/v1/completions`.

use std::sync::Arc;

use baton_core::TokenId;
use baton_text::{ControlTokens, SpecialTokens};
use serde_json::Value;
use tokio::time::Instant;

use crate::card::ModelCard;
use crate::error::ApiError;
use crate::fields::{Fields, FromJson, Mismatch};
use crate::gateway::Gateway;
use crate::generation::{Held, Job};
use crate::params::{MAX_LOGPROBS, Params, check_model, token_ids};
use crate::prompt::{Length, Prompt, tokenize_prompt};

const DEFAULT_MAX_TOKENS: u32 = 16;
/// Over all prompts of a request.
const MAX_TOTAL_CHOICES: usize = 1024;

pub(crate) struct CompletionRequest {
    inputs: Vec<Input>,
    max_tokens: Option<u32>,
    echo: bool,
    pub(crate) logprobs: Option<u32>,
    params: Params,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Input {
    Text(String),
    /// Not empty.
    Tokens(Vec<TokenId>),
}

impl CompletionRequest {
    pub(crate) fn take(fields: &mut Fields, card: &ModelCard) -> Result<Self, ApiError> {
        check_model(fields, card)?;
        let inputs = inputs(fields.require("prompt")?, card).map_err(|mismatch| mismatch.at("prompt"))?;
        if fields.take::<String>("suffix")?.is_some_and(|suffix| !suffix.is_empty()) {
            return Err(ApiError::invalid("suffix", "suffix is not supported: this model only continues a text"));
        }
        let params = Params::take(fields, card)?;
        check_best_of(fields, params.choices)?;
        check_total(inputs.len(), params.choices)?;
        let request = Self {
            inputs,
            max_tokens: fields.integer("max_tokens", 0..=u32::MAX.into())?.map(|count| count as u32),
            echo: fields.flag("echo")?,
            logprobs: fields.integer("logprobs", 0..=MAX_LOGPROBS)?.map(|count| count as u32),
            params,
        };
        request.params.check_min_tokens(request.max_tokens)?;
        Ok(request)
    }

    /// At least one.
    pub(crate) fn prompt_count(&self) -> usize {
        self.inputs.len()
    }

    /// One for each, in order.
    pub(crate) async fn prompts(&self, gateway: &Arc<Gateway>) -> Result<Vec<Prompt>, ApiError> {
        let length = match self.max_tokens {
            Some(asked) => Length::Asked("max_tokens", asked),
            None => Length::Default(Some(DEFAULT_MAX_TOKENS.max(self.params.min_tokens))),
        };
        self.prompts_for(gateway, length).await
    }

    /// The first one, for an engine that need not have room for the answer.
    pub(crate) async fn prompt_to_compute(&self, gateway: &Arc<Gateway>) -> Result<Arc<[TokenId]>, ApiError> {
        let prompts = self.prompts_for(gateway, Length::Default(None)).await?;
        Ok(Arc::clone(&prompts[0].tokens))
    }

    pub(crate) fn into_job(self, prompts: Vec<Prompt>, arrived: Instant, held: Held) -> Job {
        let Self { params, logprobs, echo, .. } = self;
        Job { prompts, params, logprobs, score_prompt: echo, arrived, held }
    }

    async fn prompts_for(&self, gateway: &Arc<Gateway>, length: Length<'_>) -> Result<Vec<Prompt>, ApiError> {
        let mut prompts = Vec::with_capacity(self.inputs.len());
        for input in &self.inputs {
            let (tokens, text) = match input {
                Input::Text(text) => {
                    let (tokens, text) = tokenize_prompt(gateway, text.clone(), SpecialTokens::Add, "prompt").await?;
                    (tokens, Some(text))
                }
                Input::Tokens(tokens) => (tokens.clone(), None),
            };
            let echo = self.echo.then(|| match text {
                Some(text) => text,
                None => gateway.card.tokenizer.decode(&tokens, ControlTokens::Hide),
            });
            prompts.push(Prompt::new(tokens, echo, length, &gateway.card, "prompt")?);
        }
        Ok(prompts)
    }
}

/// A string, a list of strings, a list of ids, or a list of lists of ids.
fn inputs(prompt: Value, card: &ModelCard) -> Result<Vec<Input>, Mismatch> {
    let first = match prompt {
        Value::String(text) => return Ok(vec![Input::Text(text)]),
        Value::Array(ref items) => items.first().ok_or_else(|| Mismatch::new("the list is empty"))?,
        _ => {
            return Err(Mismatch::new("expected a string, a list of strings, or a list of token ids or of such lists"));
        }
    };
    match first {
        Value::String(_) => Ok(Vec::from_json(prompt)?.into_iter().map(Input::Text).collect()),
        Value::Array(_) => {
            let lists = Vec::<Vec<i64>>::from_json(prompt)?.into_iter().enumerate();
            lists.map(|(at, ids)| input_of_ids(ids, card).map_err(|m| m.inside(format_args!("[{at}]")))).collect()
        }
        _ => Ok(vec![input_of_ids(Vec::from_json(prompt)?, card)?]),
    }
}

fn input_of_ids(ids: Vec<i64>, card: &ModelCard) -> Result<Input, Mismatch> {
    if ids.is_empty() {
        return Err(Mismatch::new("the list is empty"));
    }
    Ok(Input::Tokens(token_ids(ids, card)?))
}

fn check_best_of(fields: &mut Fields, choices: u32) -> Result<(), ApiError> {
    match fields.take::<i64>("best_of")? {
        Some(best_of) if best_of != i64::from(choices) => Err(ApiError::invalid(
            "best_of",
            format!("best_of is not supported unless it equals n, which is {choices}"),
        )),
        _ => Ok(()),
    }
}

fn check_total(prompts: usize, choices: u32) -> Result<(), ApiError> {
    if prompts * choices as usize <= MAX_TOTAL_CHOICES {
        return Ok(());
    }
    let message = format!(
        "{prompts} prompts with {choices} choices each are more than the {MAX_TOTAL_CHOICES} that one request may have"
    );
    Err(ApiError::invalid("prompt", message))
}
