//! The conversation of a chat request, as its model's template wants it.

use std::time::SystemTime;

use baton_text::{Conversation, Message};
use serde_json::{Map, Value};

use crate::card::ModelCard;
use crate::error::ApiError;
use crate::fields::{Fields, FromJson, Mismatch};

pub(crate) fn take(fields: &mut Fields) -> Result<Vec<Message>, ApiError> {
    let messages: Vec<Message> = fields.require("messages")?;
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
    fn from_json(value: Value) -> Result<Self, Mismatch> {
        let mut fields = Map::from_json(value)?;
        let role = role(fields.remove("role")).map_err(|mismatch| mismatch.inside(".role"))?;
        for name in ["tool_calls", "function_call"] {
            if fields.remove(name).is_some_and(|calls| !calls.is_null() && calls != Value::Array(Vec::new())) {
                return Err(
                    Mismatch::new("calling tools is not supported by this server").inside(format_args!(".{name}"))
                );
            }
        }
        let content = match fields.remove("content") {
            Some(content) => text_of(content, &role),
            None => Err(Mismatch::new("content is missing")),
        };
        let name = match fields.remove("name") {
            None | Some(Value::Null) => None,
            Some(name) => Some(String::from_json(name).map_err(|mismatch| mismatch.inside(".name"))?),
        };
        Ok(Self { role, content: content.map_err(|mismatch| mismatch.inside(".content"))?, name })
    }
}

fn role(value: Option<Value>) -> Result<String, Mismatch> {
    let role = value.map(String::from_json).ok_or_else(|| Mismatch::new("role is missing"))??;
    match role.as_str() {
        "system" | "user" | "assistant" => Ok(role),
        // OpenAI's newer name for the same thing, which no open model's template knows.
        "developer" => Ok("system".to_owned()),
        "tool" | "function" => Err(Mismatch::new("calling tools is not supported by this server")),
        other => Err(Mismatch::new(format!("{other:?} is not a role: use system, user or assistant"))),
    }
}

/// A string, or text parts that are joined; an assistant may have said nothing.
fn text_of(content: Value, role: &str) -> Result<String, Mismatch> {
    match content {
        Value::String(text) => Ok(text),
        Value::Null if role == "assistant" => Ok(String::new()),
        Value::Array(parts) => {
            let parts = parts.into_iter().enumerate();
            parts.map(|(at, part)| text_of_part(part).map_err(|m| m.inside(format_args!("[{at}]")))).collect()
        }
        _ => Err(Mismatch::new("expected a string or a list of content parts")),
    }
}

fn text_of_part(part: Value) -> Result<String, Mismatch> {
    let mut fields = Map::from_json(part)?;
    match fields.get("type").and_then(Value::as_str) {
        Some("text") => {}
        Some(other) => return Err(Mismatch::new(format!("parts of type {other:?} are not supported, only \"text\""))),
        None => return Err(Mismatch::new("type is missing")),
    }
    let text = fields.remove("text").ok_or_else(|| Mismatch::new("text is missing"))?;
    String::from_json(text).map_err(|mismatch| mismatch.inside(".text"))
}
