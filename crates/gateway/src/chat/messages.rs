//! The conversation of a chat request, as its model's template wants it.

use std::time::SystemTime;

use baton_text::{Conversation, Message};

use crate::card::ModelCard;
use crate::error::ApiError;
use crate::fields::Fields;
use crate::json::{FromJson, Json, Mismatch, quoted};

/// Each takes a kilobyte or so in a template, however short it is.
const MAX_MESSAGES: usize = 4096;

pub(crate) fn take(fields: &mut Fields<'_>) -> Result<Vec<Message>, ApiError> {
    let messages: Vec<Message> =
        fields.require_json("messages")?.list(MAX_MESSAGES).map_err(|mismatch| mismatch.at("messages"))?;
    if messages.is_empty() {
        return Err(ApiError::invalid("messages", "messages is empty: there is nothing to answer"));
    }
    Ok(messages)
}

pub(crate) fn render(card: &ModelCard, messages: &[Message], add_generation_prompt: bool) -> Result<String, ApiError> {
    let template = card.template.as_ref().ok_or_else(|| {
        let message = format!(
            "the model {:?} cannot chat: it has neither a chat_template.jinja nor a chat_template in its \
             tokenizer_config.json or GGUF metadata; use /v1/completions",
            card.id
        );
        ApiError::invalid("model", message)
    })?;
    let conversation = Conversation { messages, add_generation_prompt, now: SystemTime::now() };
    template.render(&conversation).map_err(|error| ApiError::of_text(&error, "messages"))
}

impl FromJson for Message {
    fn from_json(json: Json<'_>) -> Result<Self, Mismatch> {
        let mut fields = Fields::of(json)?;
        let role = role(fields.take_json("role")).map_err(|mismatch| mismatch.inside(".role"))?;
        for name in ["tool_calls", "function_call"] {
            if fields.take_json(name).is_some_and(|calls| calls.text() != "[]") {
                return Err(
                    Mismatch::new("calling tools is not supported by this server").inside(format_args!(".{name}"))
                );
            }
        }
        let content = text_of(fields.take_json("content"), &role).map_err(|mismatch| mismatch.inside(".content"))?;
        let name = fields.take_json("name").map(String::from_json).transpose();
        Ok(Self { role, content, name: name.map_err(|mismatch| mismatch.inside(".name"))? })
    }
}

fn role(json: Option<Json<'_>>) -> Result<String, Mismatch> {
    let role = json.map(String::from_json).ok_or_else(|| Mismatch::new("role is missing"))??;
    match role.as_str() {
        "system" | "user" | "assistant" => Ok(role),
        // OpenAI's newer name for the same thing, which no open model's template knows.
        "developer" => Ok("system".to_owned()),
        "tool" | "function" => Err(Mismatch::new("calling tools is not supported by this server")),
        other => Err(Mismatch::new(format!("{} is not a role: use system, user or assistant", quoted(other)))),
    }
}

/// A string, or text parts that are joined; an assistant's may be absent.
fn text_of(content: Option<Json<'_>>, role: &str) -> Result<String, Mismatch> {
    let Some(content) = content else {
        return if role == "assistant" { Ok(String::new()) } else { Err(Mismatch::new("content is missing")) };
    };
    if content.is_string() {
        return String::from_json(content);
    }
    if !content.is_list() {
        return Err(Mismatch::new("expected a string or a list of content parts"));
    }
    let mut text = String::new();
    content.each_item(usize::MAX, |_, part| {
        text += &text_of_part(part)?;
        Ok(())
    })?;
    Ok(text)
}

fn text_of_part(part: Json<'_>) -> Result<String, Mismatch> {
    let mut fields = Fields::of(part)?;
    let kind = fields.take_json("type").ok_or_else(|| Mismatch::new("type is missing"))?;
    if kind.text() != "\"text\"" {
        return Err(Mismatch::new(format!("parts of type {} are not supported, only \"text\"", kind.short())));
    }
    let text = fields.take_json("text").ok_or_else(|| Mismatch::new("text is missing"))?;
    String::from_json(text).map_err(|mismatch| mismatch.inside(".text"))
}
