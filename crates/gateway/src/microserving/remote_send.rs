//! `POST /microserving/remote_send`: computes a prompt's KV and hands it to the engine that made room for it.

use std::sync::Arc;

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use baton_core::TokenRange;
use serde::Serialize;

use super::Calls;
use super::call::{Call, bare_request, position};
use super::metadata::Metadata;
use super::names::Name;
use crate::body;
use crate::error::ApiError;

/// `{}`
#[derive(Serialize)]
pub(super) struct Done {}

/// Answers when the receiver has verified what was sent.
pub(super) async fn remote_send(State(calls): State<Arc<Calls>>, body: Body) -> Result<Json<Done>, ApiError> {
    let received = body::admit(&calls.gateway, body).await?;
    let mut fields = received.fields()?;
    let Call { user, mut completion } = Call::take(&mut fields, &calls.gateway.card)?;
    let (begin, end): (i64, i64) = (fields.require("begin")?, fields.require("end")?);
    let metadata = Metadata::parse(&fields.require::<String>("kv_addr_info")?)?;
    // The receiver's place among all devices: the metadata holds its address.
    let _recv_rank = fields.integer("recv_rank", 0..=u32::MAX.into())?;
    metadata.check_tokenizer(calls.gateway.card.tokenizer.id())?;
    let prompt = completion.prompt_to_compute(&calls.gateway).await?;
    let (begin, end) = (position("begin", begin, prompt.len())?, position("end", end, prompt.len())?);
    let range = TokenRange::new(begin, end)
        .ok_or_else(|| ApiError::invalid("begin", format!("begin is {begin}, behind end, which is {end}")))?;

    let turn = calls.names.enter(user.map(Name::Sending))?;
    let request = bare_request(turn.request, prompt);
    let sent = calls.engine.remote_send(&request, &metadata.destination(), range).await?;
    metadata.check_taken(range, sent)?;
    Ok(Json(Done {}))
}
