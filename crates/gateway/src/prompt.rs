//! What the client wants continued, as token ids that fit the model.

use std::sync::Arc;

use baton_core::TokenId;
use baton_text::SpecialTokens;

use crate::card::ModelCard;
use crate::error::ApiError;
use crate::gateway::Gateway;

/// Longer texts are tokenized aside, so that they do not hold up other requests' streams.
const LONG_TEXT_BYTES: usize = 16 << 10;

#[derive(Debug)]
pub(crate) struct Prompt {
    pub(crate) tokens: Arc<[TokenId]>,
    /// 0: nothing but the prompt's own log-probabilities.
    pub(crate) max_tokens: u32,
    /// Goes before the answer.
    pub(crate) echo: Option<String>,
}

/// How many tokens an answer may have.
#[derive(Clone, Copy)]
pub(crate) enum Length<'a> {
    /// As the client requests in this field.
    Requested(&'a str, u32),
    /// The client sets no limit: this many, or what the context has room for.
    Default(Option<u32>),
}

/// For a prompt: one that is far too long is refused before it costs anything.
pub(crate) async fn tokenize_prompt(
    gateway: &Arc<Gateway>,
    text: String,
    special: SpecialTokens,
    param: &'static str,
) -> Result<(Vec<TokenId>, String), ApiError> {
    let least = gateway.card.tokenizer.fewest_tokens(&text);
    if least >= gateway.card.max_context_tokens as usize {
        return Err(too_long(&gateway.card, param, &format!("at least {least}")));
    }
    tokenize(gateway, text, special, param).await
}

/// `param` is the field the text came from; the text comes back for an echo.
pub(crate) async fn tokenize(
    gateway: &Arc<Gateway>,
    text: String,
    special: SpecialTokens,
    param: &'static str,
) -> Result<(Vec<TokenId>, String), ApiError> {
    let encode = move |gateway: &Gateway, text: &str| {
        gateway.card.tokenizer.encode(text, special).map_err(|error| ApiError::of_text(&error, param))
    };
    let mut memory = gateway.bodies.share();
    memory.hold(gateway.card.tokenizer.working_memory(&text), param).await?;
    if text.len() < LONG_TEXT_BYTES {
        return Ok((encode(gateway, &text)?, text));
    }
    let gateway = Arc::clone(gateway);
    let tokenized = tokio::task::spawn_blocking(move || {
        let _held_to_the_end = memory;
        Ok((encode(&gateway, &text)?, text))
    });
    tokenized.await.map_err(|error| {
        ApiError::new(axum::http::StatusCode::INTERNAL_SERVER_ERROR, format!("tokenizing failed: {error}"))
    })?
}

impl Prompt {
    /// An empty prompt becomes the beginning-of-sequence token, where the model has one.
    pub(crate) fn new(
        mut tokens: Vec<TokenId>,
        echo: Option<String>,
        length: Length<'_>,
        card: &ModelCard,
        param: &str,
    ) -> Result<Self, ApiError> {
        if tokens.is_empty() {
            tokens.push(card.bos_token.ok_or_else(|| {
                ApiError::invalid(param, format!("{param} is empty, and this model has no token that begins a text"))
            })?);
        }
        let max_tokens = max_tokens(tokens.len(), length, card, param)?;
        Ok(Self { tokens: tokens.into(), max_tokens, echo })
    }
}

fn max_tokens(prompt_tokens: usize, length: Length<'_>, card: &ModelCard, param: &str) -> Result<u32, ApiError> {
    let context = card.max_context_tokens;
    let room = u32::try_from(prompt_tokens).ok().and_then(|prompt| context.checked_sub(prompt)).unwrap_or(0);
    if room == 0 {
        return Err(too_long(card, param, &prompt_tokens.to_string()));
    }
    match length {
        Length::Requested(_, requested) if requested <= room => Ok(requested),
        Length::Requested(field, requested) => {
            let total = prompt_tokens as u64 + u64::from(requested);
            let excess =
                format!("you requested {total} tokens ({prompt_tokens} in the prompt, {requested} to generate)");
            Err(beyond_context(card, field, &excess, &format!("length of the prompt, or {field}")))
        }
        Length::Default(limit) => Ok(limit.map_or(room, |limit| limit.min(room))),
    }
}

/// The answer needs one token at least.
fn too_long(card: &ModelCard, param: &str, tokens: &str) -> ApiError {
    let excess = format!("your {param} resulted in {tokens} tokens, and the answer needs one at least");
    beyond_context(card, param, &excess, &format!("length of the {param}"))
}

/// In OpenAI's words: clients look for them to shorten what they send. `reduce`: what helps.
fn beyond_context(card: &ModelCard, param: &str, excess: &str, reduce: &str) -> ApiError {
    let context = card.max_context_tokens;
    let message = format!(
        "This model's maximum context length is {context} tokens. However, {excess}. Please reduce the {reduce}."
    );
    ApiError::invalid(param, message).with_code("context_length_exceeded")
}
