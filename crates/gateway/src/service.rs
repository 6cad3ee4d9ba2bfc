//! The routes that are about the server itself: models, health, readiness, metrics.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use axum::Json;
use axum::extract::{Path, State};
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use serde::Serialize;

use crate::card::SamplingDefaults;
use crate::error::ApiError;
use crate::gateway::Gateway;
use crate::params::unknown_model;

#[derive(Serialize)]
pub(crate) struct ModelObject {
    id: String,
    object: &'static str,
    created: u64,
    owned_by: &'static str,
    max_model_len: u32,
    /// Prompts may hold ids below it.
    vocab_size: u32,
    /// For what a request leaves out.
    default_sampling: SamplingDefaults,
}

#[derive(Serialize)]
pub(crate) struct ModelList {
    object: &'static str,
    data: Vec<ModelObject>,
}

fn model_object(gateway: &Gateway) -> ModelObject {
    let started = gateway.started.duration_since(SystemTime::UNIX_EPOCH).unwrap_or(Duration::ZERO);
    ModelObject {
        id: gateway.card.id.clone(),
        object: "model",
        created: started.as_secs(),
        owned_by: "baton",
        max_model_len: gateway.card.max_context_tokens,
        vocab_size: gateway.card.vocab_size,
        default_sampling: gateway.card.defaults.clone(),
    }
}

pub(crate) async fn models(State(gateway): State<Arc<Gateway>>) -> Json<ModelList> {
    Json(ModelList { object: "list", data: vec![model_object(&gateway)] })
}

/// The id is the rest of the path: some models have a slash in their names.
pub(crate) async fn model(
    State(gateway): State<Arc<Gateway>>,
    Path(id): Path<String>,
) -> Result<Json<ModelObject>, ApiError> {
    if id == gateway.card.id { Ok(Json(model_object(&gateway))) } else { Err(unknown_model(&id, &gateway.card)) }
}

#[derive(Serialize)]
pub(crate) struct Health {
    status: &'static str,
}

pub(crate) async fn health() -> Json<Health> {
    Json(Health { status: "ok" })
}

pub(crate) async fn ready(State(gateway): State<Arc<Gateway>>) -> Result<Json<Health>, ApiError> {
    if gateway.dispatcher.is_ready() {
        return Ok(Json(Health { status: "ready" }));
    }
    let message = "no engine is ready to serve a request";
    Err(ApiError { retry_after_ms: Some(1000), ..ApiError::new(StatusCode::SERVICE_UNAVAILABLE, message) })
}

pub(crate) async fn metrics(State(gateway): State<Arc<Gateway>>) -> impl IntoResponse {
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], crate::metrics::page(&gateway))
}
