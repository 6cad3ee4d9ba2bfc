//! The body of a request to `/v1/chat/completions`.

use std::sync::Arc;

use baton_text::{Message, SpecialTokens};

use super::messages;
use crate::card::ModelCard;
use crate::error::ApiError;
use crate::fields::Fields;
use crate::gateway::Gateway;
use crate::json::{FromJson, Mismatch};
use crate::params::{MAX_LOGPROBS, Params, check_model};
use crate::prompt::{Length, Prompt, tokenize_prompt};

const MAX_MODALITIES: usize = 16;

pub(super) struct ChatRequest {
    messages: Vec<Message>,
    add_generation_prompt: bool,
    /// (field, tokens)
    max_tokens: Option<(&'static str, u32)>,
    pub(super) logprobs: Option<u32>,
    pub(super) params: Params,
}

impl ChatRequest {
    pub(super) fn take(fields: &mut Fields<'_>, card: &ModelCard) -> Result<Self, ApiError> {
        check_model(fields, card)?;
        let messages = messages::take(fields)?;
        refuse(fields)?;
        let request = Self {
            messages,
            add_generation_prompt: fields.take("add_generation_prompt")?.unwrap_or(true),
            max_tokens: max_tokens(fields)?,
            logprobs: logprobs(fields)?,
            params: Params::take(fields, card)?,
        };
        request.params.check_min_tokens(request.max_tokens.map(|(_, count)| count))?;
        Ok(request)
    }

    pub(super) async fn prompt(&self, gateway: &Arc<Gateway>) -> Result<Prompt, ApiError> {
        let text = messages::render(&gateway.card, &self.messages, self.add_generation_prompt)?;
        let (tokens, _) = tokenize_prompt(gateway, text, SpecialTokens::AsWritten, "messages").await?;
        let length = match self.max_tokens {
            Some((field, requested)) => Length::Requested(field, requested),
            None => {
                Length::Default(gateway.card.defaults.max_new_tokens.map(|limit| limit.max(self.params.min_tokens)))
            }
        };
        Prompt::new(tokens, None, length, &gateway.card, "messages")
    }
}

fn max_tokens(fields: &mut Fields<'_>) -> Result<Option<(&'static str, u32)>, ApiError> {
    let mut requested = None;
    // The newer name wins when both are there.
    for name in ["max_tokens", "max_completion_tokens"] {
        if let Some(count) = fields.integer(name, 1..=u32::MAX.into())? {
            requested = Some((name, count as u32));
        }
    }
    Ok(requested)
}

fn logprobs(fields: &mut Fields<'_>) -> Result<Option<u32>, ApiError> {
    let wanted = fields.flag("logprobs")?;
    let top = fields.integer("top_logprobs", 0..=MAX_LOGPROBS)?;
    if top.is_some_and(|count| count > 0) && !wanted {
        return Err(ApiError::invalid("top_logprobs", "top_logprobs needs logprobs to be true"));
    }
    Ok(wanted.then(|| top.unwrap_or(0) as u32))
}

/// What an answer in plain text would silently leave out.
fn refuse(fields: &mut Fields<'_>) -> Result<(), ApiError> {
    let unsupported = |name: &str, what: &str| Err(ApiError::invalid(name, format!("{name}: {what}")));
    let no_tools = fields.take_json("tool_choice").is_some_and(|choice| choice.text() == "\"none\"");
    for name in ["tools", "functions"] {
        let Some(tools) = fields.take_json(name) else { continue };
        if !tools.is_list() {
            return Err(tools.expected("a list").at(name));
        }
        if !tools.is_empty() && !no_tools {
            return unsupported(name, "calling tools is not supported by this server");
        }
    }
    if let Some(kinds) = fields.take_json("modalities") {
        let all_text = kinds.each_item(MAX_MODALITIES, |_, kind| match String::from_json(kind)?.as_str() {
            "text" => Ok(()),
            _ => Err(Mismatch::new("only \"text\" is supported")),
        });
        all_text.map_err(|mismatch| mismatch.at("modalities"))?;
    }
    for name in ["audio", "prediction", "web_search_options", "chat_template", "chat_template_kwargs", "documents"] {
        if fields.take_json(name).is_some() {
            return unsupported(name, "not supported by this server");
        }
    }
    for name in ["echo", "continue_final_message"] {
        if fields.flag(name)? {
            return unsupported(name, "not supported by this server");
        }
    }
    Ok(())
}
