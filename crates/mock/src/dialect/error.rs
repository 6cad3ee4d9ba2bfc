//! Error responses in the dialect's JSON shape.

use hyper::StatusCode;
use serde_json::{Value, json};

use super::config::Dialect;
use super::engine::DialectEngine;

#[derive(Debug)]
pub(super) struct ErrorResponse {
    pub(super) status: StatusCode,
    pub(super) body: Value,
}

impl ErrorResponse {
    pub(super) fn new(engine: &DialectEngine, status: StatusCode, message: String) -> Self {
        let kind = match status {
            StatusCode::NOT_FOUND => "NotFoundError",
            status if status.is_client_error() => "BadRequestError",
            _ => "InternalServerError",
        };
        let mut fields = json!({"message": message, "type": kind, "param": null, "code": status.as_u16()});
        let body = match engine.dialect {
            Dialect::Vllm => json!({"error": fields}),
            Dialect::Sglang => {
                fields["object"] = json!("error");
                fields
            }
        };
        Self { status, body }
    }

    pub(super) fn bad(engine: &DialectEngine, message: String) -> Self {
        Self::new(engine, StatusCode::BAD_REQUEST, message)
    }

    pub(super) fn failed(engine: &DialectEngine, message: String) -> Self {
        Self::new(engine, StatusCode::INTERNAL_SERVER_ERROR, message)
    }
}
