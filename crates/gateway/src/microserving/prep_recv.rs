//! `POST /microserving/prep_recv`: makes room for KV that another engine will send.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use serde::Serialize;

use super::Calls;
use super::call::{Call, bare_request, position};
use super::metadata::Metadata;
use crate::body;
use crate::error::ApiError;

const DEFAULT_LEASE_MS: i64 = 60_000;
const MAX_LEASE_MS: i64 = 600_000;

#[derive(Serialize)]
pub(super) struct Prepared {
    kv_append_metadata: String,
    prefix_matched_length: u32,
}

pub(super) async fn prep_recv(State(calls): State<Arc<Calls>>, body: Body) -> Result<Json<Prepared>, ApiError> {
    let received = body::admit(&calls.gateway, body).await?;
    let mut fields = received.fields()?;
    let Call { user, mut completion } = Call::take(&mut fields, &calls.gateway.card)?;
    let user = user.ok_or_else(|| {
        ApiError::invalid(
            "user",
            "user is missing: it names the request, so that start_generate finds what was reserved",
        )
    })?;
    let end: i64 = fields.require("end")?;
    let lease_ms = fields.integer("lease_ms", 1..=MAX_LEASE_MS)?.unwrap_or(DEFAULT_LEASE_MS);
    let lease = Duration::from_millis(lease_ms as u64);
    let prompt = completion.prompt_to_compute(&calls.gateway).await?;
    let end = position("end", end, prompt.len())?;

    let turn = calls.names.enter_anew(user)?;
    let reservation = calls.engine.prep_recv_leased(&bare_request(turn.request, prompt), end, lease).await?;
    let metadata = Metadata::new(calls.gateway.card.tokenizer.id(), &reservation);
    let prepared = Prepared { kv_append_metadata: metadata.to_text()?, prefix_matched_length: reservation.matched };
    turn.keep(reservation, lease);
    Ok(Json(prepared))
}
