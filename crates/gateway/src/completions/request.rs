//! The body of a request to `/v1/completions`.

use std::sync::Arc;

use baton_core::TokenId;
use baton_text::{ControlTokens, SpecialTokens};
use tokio::time::Instant;

use crate::budget::Share;
use crate::card::ModelCard;
use crate::error::ApiError;
use crate::fields::Fields;
use crate::gateway::Gateway;
use crate::generation::{Held, Job};
use crate::json::{FromJson, Json, Mismatch};
use crate::params::{MAX_LOGPROBS, Params, check_model, token_ids};
use crate::prompt::{Length, Prompt, tokenize_prompt};

const DEFAULT_MAX_TOKENS: u32 = 16;
/// Over all prompts of a request.
const MAX_TOTAL_CHOICES: usize = 1024;
/// Entries of logit_bias and stop_token_ids over all prompts, each of which has them for itself. One prompt may name every
/// token of a vocabulary.
const MAX_TOTAL_TOKEN_RULES: usize = 1 << 20;
/// Of a prompt's token in an answer, beside its text, for itself and for each of its candidates.
const SCORE_BYTES: usize = 96;

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
    pub(crate) fn take(fields: &mut Fields<'_>, card: &ModelCard) -> Result<Self, ApiError> {
        check_model(fields, card)?;
        if fields.take::<String>("suffix")?.is_some_and(|suffix| !suffix.is_empty()) {
            return Err(ApiError::invalid("suffix", "suffix is not supported: this model only continues a text"));
        }
        let params = Params::take(fields, card)?;
        // How many prompts there may be is known before the first of them is kept.
        let most = MAX_TOTAL_CHOICES / params.choices as usize;
        let inputs = inputs(fields.require_json("prompt")?, most, card).map_err(|mismatch| mismatch.at("prompt"))?;
        check_token_rules(inputs.len(), &params)?;
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

    /// One for each, in order. `echoes` grows by what their texts take in the answer.
    pub(crate) async fn prompts(
        &mut self,
        gateway: &Arc<Gateway>,
        echoes: &mut Share,
    ) -> Result<Vec<Prompt>, ApiError> {
        let length = match self.max_tokens {
            Some(requested) => Length::Requested("max_tokens", requested),
            None => Length::Default(Some(DEFAULT_MAX_TOKENS.max(self.params.min_tokens))),
        };
        let mut prompts = Vec::with_capacity(self.inputs.len());
        let mut echo_bytes = 0_usize;
        for input in std::mem::take(&mut self.inputs) {
            let (tokens, text) = input.tokenize(gateway).await?;
            let echo = self.echo.then(|| match text {
                Some(text) => text,
                None => gateway.card.tokenizer.decode(&tokens, ControlTokens::Hide),
            });
            if let Some(text) = &echo {
                echo_bytes += self.answer_bytes(text, tokens.len());
                echoes.hold(echo_bytes, "echo").await?;
            }
            prompts.push(Prompt::new(tokens, echo, length, &gateway.card, "prompt")?);
        }
        Ok(prompts)
    }

    /// The first one, for an engine that need not have room for the answer.
    pub(crate) async fn prompt_to_compute(&mut self, gateway: &Arc<Gateway>) -> Result<Arc<[TokenId]>, ApiError> {
        self.inputs.truncate(1);
        let input = self.inputs.pop().ok_or_else(|| ApiError::invalid("prompt", "prompt is missing"))?;
        let (tokens, _) = input.tokenize(gateway).await?;
        Ok(Prompt::new(tokens, None, Length::Default(None), &gateway.card, "prompt")?.tokens)
    }

    /// What an echoed prompt takes, in every choice.
    fn answer_bytes(&self, text: &str, tokens: usize) -> usize {
        let scores = self.logprobs.map_or(0, |candidates| tokens * (1 + candidates as usize) * SCORE_BYTES);
        (text.len() + scores) * self.params.choices as usize
    }

    pub(crate) fn into_job(self, prompts: Vec<Prompt>, arrived: Instant, held: Held) -> Job {
        let Self { params, logprobs, echo, .. } = self;
        Job { prompts, params, logprobs, score_prompt: echo, arrived, held }
    }
}

impl Input {
    /// The text comes back for an echo.
    async fn tokenize(self, gateway: &Arc<Gateway>) -> Result<(Vec<TokenId>, Option<String>), ApiError> {
        match self {
            Self::Text(text) => {
                let (tokens, text) = tokenize_prompt(gateway, text, SpecialTokens::Add, "prompt").await?;
                Ok((tokens, Some(text)))
            }
            Self::Tokens(tokens) => Ok((tokens, None)),
        }
    }
}

/// A string, a list of strings, a list of ids, or a list of lists of ids.
fn inputs(prompt: Json<'_>, most: usize, card: &ModelCard) -> Result<Vec<Input>, Mismatch> {
    if prompt.is_string() {
        return Ok(vec![Input::Text(String::from_json(prompt)?)]);
    }
    if !prompt.is_list() {
        return Err(Mismatch::new("expected a string, a list of strings, or a list of token ids or of such lists"));
    }
    let first = prompt.first_item().ok_or_else(|| Mismatch::new("the list is empty"))?;
    if !first.is_string() && !first.is_list() {
        return Ok(vec![input_of_ids(prompt, card)?]);
    }
    let mut inputs = Vec::new();
    prompt.each_item(usize::MAX, |_, item| {
        if inputs.len() == most {
            return Err(Mismatch::new(format!(
                "one request may have {MAX_TOTAL_CHOICES} choices over all its prompts: {most} prompts with this n"
            )));
        }
        inputs.push(match first.is_string() {
            true => Input::Text(String::from_json(item)?),
            false => input_of_ids(item, card)?,
        });
        Ok(())
    })?;
    Ok(inputs)
}

fn input_of_ids(ids: Json<'_>, card: &ModelCard) -> Result<Input, Mismatch> {
    let tokens = token_ids(ids, card)?;
    if tokens.is_empty() { Err(Mismatch::new("the list is empty")) } else { Ok(Input::Tokens(tokens)) }
}

fn check_token_rules(prompts: usize, params: &Params) -> Result<(), ApiError> {
    for (name, rules) in
        [("logit_bias", params.sampling.logit_bias.len()), ("stop_token_ids", params.stop_tokens.len())]
    {
        if prompts * rules > MAX_TOTAL_TOKEN_RULES {
            let message = format!(
                "{name} has {rules} entries for each of {prompts} prompts, more than {MAX_TOTAL_TOKEN_RULES} in all"
            );
            return Err(ApiError::invalid(name, message));
        }
    }
    Ok(())
}
