//! `GET /debug/audit`: recounts every KV page. 200 when the counts agree; else 500, and the message names those that do not.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use serde::Serialize;

use super::Calls;
use crate::error::ApiError;

#[derive(Serialize)]
pub(super) struct Audited {
    agrees: bool,
    pages_total: u32,
    pages_free: u32,
    pages_cached: u32,
    reserved_pages: u32,
    reservations: u32,
    running: u32,
    waiting: u32,
    exports: u32,
}

pub(super) async fn audit(State(calls): State<Arc<Calls>>) -> Result<Json<Audited>, ApiError> {
    calls.engine.audit().await?;
    let load = calls.engine.report().load;
    Ok(Json(Audited {
        agrees: true,
        pages_total: load.pages_total,
        pages_free: load.pages_free,
        pages_cached: load.pages_cached,
        reserved_pages: load.reserved_pages,
        reservations: load.reservations,
        running: load.running,
        waiting: load.waiting,
        exports: load.exports,
    }))
}
