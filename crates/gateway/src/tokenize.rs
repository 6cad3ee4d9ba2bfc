//! `POST /tokenize` and `POST /detokenize`: what the model sees of a text, and back.

use std::sync::Arc;

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use baton_core::TokenId;
use baton_text::{ControlTokens, SpecialTokens};
use serde::Serialize;

use crate::body;
use crate::chat::messages;
use crate::error::ApiError;
use crate::gateway::Gateway;
use crate::params::{check_model, token_ids};
use crate::prompt;

#[derive(Serialize)]
pub(crate) struct Tokenized {
    tokens: Vec<TokenId>,
    count: usize,
    max_model_len: u32,
}

pub(crate) async fn tokenize(State(gateway): State<Arc<Gateway>>, body: Body) -> Result<Json<Tokenized>, ApiError> {
    let (_permit, mut fields) = body::admit(&gateway, body).await?;
    check_model(&mut fields, &gateway.card)?;
    let add_special: Option<bool> = fields.take("add_special_tokens")?;
    let special = |default: bool| match add_special.unwrap_or(default) {
        true => SpecialTokens::Add,
        false => SpecialTokens::AsWritten,
    };
    let (text, special, param) = match fields.take::<String>("prompt")? {
        Some(text) => (text, special(true), "prompt"),
        None => {
            if !fields.has("messages") {
                return Err(ApiError::invalid("prompt", "prompt or messages is missing"));
            }
            let conversation = messages::take(&mut fields)?;
            let open_turn = fields.take("add_generation_prompt")?.unwrap_or(true);
            (messages::render(&gateway.card, &conversation, open_turn)?, special(false), "messages")
        }
    };
    let (tokens, _) = prompt::tokenize(&gateway, text, special, param).await?;
    Ok(Json(Tokenized { count: tokens.len(), tokens, max_model_len: gateway.card.max_context_tokens }))
}

#[derive(Serialize)]
pub(crate) struct Detokenized {
    prompt: String,
}

pub(crate) async fn detokenize(State(gateway): State<Arc<Gateway>>, body: Body) -> Result<Json<Detokenized>, ApiError> {
    let (_permit, mut fields) = body::admit(&gateway, body).await?;
    check_model(&mut fields, &gateway.card)?;
    let ids = fields.require("tokens")?;
    let tokens = token_ids(ids, &gateway.card).map_err(|mismatch| mismatch.at("tokens"))?;
    Ok(Json(Detokenized { prompt: gateway.card.tokenizer.decode(&tokens, ControlTokens::Show) }))
}
