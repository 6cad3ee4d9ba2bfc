//! `POST /tokenize` and `POST /detokenize`: what the model sees of a text, and back.

use std::convert::Infallible;
use std::sync::Arc;

use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use baton_core::TokenId;
use baton_text::{ControlTokens, SpecialTokens};
use futures_util::stream;
use serde::Serialize;

use crate::body::{self, BYTES_PER_BODY_BYTE};
use crate::chat::messages;
use crate::error::ApiError;
use crate::gateway::Gateway;
use crate::params::{check_model, token_ids};
use crate::prompt;

/// What is handed to a connection at a time.
const PIECE_BYTES: usize = 64 << 10;

#[derive(Serialize)]
pub(crate) struct Tokenized {
    tokens: Vec<TokenId>,
    count: usize,
    max_model_len: u32,
}

pub(crate) async fn tokenize(State(gateway): State<Arc<Gateway>>, body: Body) -> Result<Response, ApiError> {
    let received = body::admit(&gateway, body).await?;
    let mut fields = received.fields()?;
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
    let answer = Tokenized { count: tokens.len(), tokens, max_model_len: gateway.card.max_context_tokens };
    Ok(whole(&answer, received.into_parts()))
}

#[derive(Serialize)]
pub(crate) struct Detokenized {
    prompt: String,
}

pub(crate) async fn detokenize(State(gateway): State<Arc<Gateway>>, body: Body) -> Result<Response, ApiError> {
    let received = body::admit(&gateway, body).await?;
    let mut fields = received.fields()?;
    check_model(&mut fields, &gateway.card)?;
    let tokens = token_ids(fields.require_json("tokens")?, &gateway.card).map_err(|mismatch| mismatch.at("tokens"))?;
    let (permit, mut share) = received.into_parts();
    let vocabulary = gateway.card.tokenizer.vocabulary();
    let text_bytes: usize = tokens.iter().map(|&token| vocabulary.bytes(token).len()).sum();
    share.hold(text_bytes * BYTES_PER_BODY_BYTE, "tokens").await?;
    let prompt = gateway.card.tokenizer.decode(&tokens, ControlTokens::Show);
    Ok(whole(&Detokenized { prompt }, (permit, share)))
}

/// `held` is given back when the client has taken all but the last piece of it.
fn whole(answer: &impl Serialize, held: impl Send + 'static) -> Response {
    let text = match serde_json::to_vec(answer) {
        Ok(text) => Bytes::from(text),
        Err(error) => {
            let message = format!("the answer could not be written: {error}");
            return ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, message).into_response();
        }
    };
    let pieces = stream::unfold((text, held), |(mut text, held)| async move {
        let piece = text.split_to(PIECE_BYTES.min(text.len()));
        (!piece.is_empty()).then_some((Ok::<_, Infallible>(piece), (text, held)))
    });
    ([(header::CONTENT_TYPE, "application/json")], Body::from_stream(pieces)).into_response()
}
