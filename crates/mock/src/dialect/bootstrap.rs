//! SGLang's bootstrap server, through which a decode engine finds the side channel of a request's prefill engine.

use std::sync::Arc;

use hyper::body::Incoming;
use hyper::{Method, Request, Response};
use serde_json::json;

use super::engine::DialectEngine;
use super::error::ErrorResponse;
use super::http::{self, Reply};

/// Runs on the prefill engine. It listens only when the engine is ready, so it never responds with 503.
pub(super) async fn answer(engine: Arc<DialectEngine>, request: Request<Incoming>) -> Response<Reply> {
    match (request.method(), request.uri().path(), request.uri().query()) {
        (&Method::GET, "/health", _) => http::whole("text/plain", "OK"),
        // All ranks are -1: a query for the engine's parallel layout, not for a rank's address.
        (&Method::GET, "/route", Some(query)) if query.split('&').all(|pair| pair.ends_with("=-1")) => {
            http::json(&json!({
                "attn_tp_size": 1, "attn_cp_size": 1, "dp_size": 1, "pp_size": 1, "page_size": 1,
                "kv_cache_dtype": "auto", "follow_bootstrap_room": true,
            }))
        }
        (&Method::GET, "/route", Some(_)) => {
            let address = engine.side_channel_address();
            http::json(&json!({"rank_ip": address.ip().to_string(), "rank_port": address.port()}))
        }
        (_, "/route", None) => http::error(ErrorResponse::bad(&engine, "missing ranks".to_owned())),
        (method, path, _) => http::error(ErrorResponse::bad(&engine, format!("there is no {method} {path}"))),
    }
}
