//! Routing by path.

use std::sync::Arc;

use hyper::body::Incoming;
use hyper::header::HeaderMap;
use hyper::{Method, Request, Response, StatusCode};
use serde_json::json;

use super::error::ErrorResponse;
use super::http::{self, Reply};
use super::request::{DialectRequest, RequestKind};
use super::{Dialect, DialectEngine, sglang, vllm};

pub(super) async fn answer(engine: Arc<DialectEngine>, request: Request<Incoming>) -> Response<Reply> {
    let (head, body) = request.into_parts();
    let api = match (&head.method, head.uri.path(), engine.dialect) {
        (&Method::POST, "/v1/completions", _) => RequestKind::Completions,
        (&Method::POST, "/v1/chat/completions", _) => RequestKind::Chat,
        (&Method::POST, "/generate", Dialect::Sglang) => RequestKind::Generate,
        (&Method::GET, path, _) => return about(&engine, path),
        (method, path, _) => return unknown(&engine, &format!("{method} {path}")),
    };
    let answered = async {
        let bytes = http::read(body, &engine).await?;
        let request = DialectRequest::parse(&engine, api, &bytes, request_id(&head.headers))?;
        match engine.dialect {
            Dialect::Vllm => vllm::answer(&engine, request).await,
            Dialect::Sglang => sglang::answer(&engine, request).await,
        }
    };
    answered.await.unwrap_or_else(|error: ErrorResponse| {
        engine.counters.refused(error.status);
        http::error(error)
    })
}

/// Routers send the same id on both legs.
fn request_id(headers: &HeaderMap) -> Option<&str> {
    headers.get("x-request-id").and_then(|value| value.to_str().ok())
}

/// Health checks, the model list and metrics.
fn about(engine: &DialectEngine, path: &str) -> Response<Reply> {
    let (model, context) = (&engine.model, engine.config.shape.context_tokens);
    match (path, engine.dialect) {
        ("/health", _) | ("/ping", Dialect::Vllm) | ("/health_generate", Dialect::Sglang) => {
            Response::new(Reply::Whole(None))
        }
        ("/v1/models", dialect) => {
            let owner = if dialect == Dialect::Vllm { "vllm" } else { "sglang" };
            let card = json!({
                "id": model, "object": "model", "created": 0, "owned_by": owner, "root": model, "parent": null,
                "max_model_len": context,
            });
            http::json(&json!({"object": "list", "data": [card]}))
        }
        ("/version", Dialect::Vllm) => http::json(&json!({"version": "0.32.0"})),
        ("/get_model_info" | "/model_info", Dialect::Sglang) => http::json(&json!({
            "model_path": model, "tokenizer_path": model, "is_generation": true, "weight_version": "default",
        })),
        ("/get_server_info" | "/server_info", Dialect::Sglang) => http::json(&json!({
            "model_path": model, "served_model_name": model, "tp_size": 1, "dp_size": 1, "pp_size": 1,
            "disaggregation_mode": engine.role.map_or("null", |role| role.name()), "max_total_num_tokens": context,
            "internal_states": [{}], "version": "mock",
        })),
        ("/metrics", dialect) => {
            http::whole("text/plain; version=0.0.4; charset=utf-8", engine.counters.prometheus_text(dialect))
        }
        _ => unknown(engine, path),
    }
}

fn unknown(engine: &DialectEngine, what: &str) -> Response<Reply> {
    http::error(ErrorResponse::new(engine, StatusCode::NOT_FOUND, format!("there is nothing at {what}")))
}
