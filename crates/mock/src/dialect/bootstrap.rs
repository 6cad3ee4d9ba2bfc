//! SGLang's bootstrap server, through which a decode engine finds the side channel of a request's prefill engine.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use hyper::body::Incoming;
use hyper::{Method, Request, Response};
use serde::Deserialize;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::Mutex;

use super::DialectEngine;
use super::http::{self, ErrorResponse, Reply};

const TIMEOUT: Duration = Duration::from_secs(5);
const MAX_ANSWER_BYTES: u64 = 1 << 16;

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
        (_, "/route", None) => ErrorResponse::bad(&engine, "missing ranks".to_owned()).respond(),
        (method, path, _) => ErrorResponse::bad(&engine, format!("there is no {method} {path}")).respond(),
    }
}

/// A decode engine's cache of prefill engines' addresses.
#[derive(Default)]
pub(super) struct RouteCache {
    known: Mutex<HashMap<(String, u16), Route>>,
}

#[derive(Clone, Debug, Deserialize)]
pub(super) struct Route {
    #[serde(rename = "rank_ip")]
    pub(super) host: String,
    #[serde(rename = "rank_port")]
    pub(super) port: u16,
}

impl RouteCache {
    pub(super) async fn find(&self, host: &str, port: u16) -> io::Result<Route> {
        let key = (host.to_owned(), port);
        let mut known = self.known.lock().await;
        if let Some(route) = known.get(&key) {
            return Ok(route.clone());
        }
        let route = tokio::time::timeout(TIMEOUT, query(host, port)).await??;
        known.insert(key, route.clone());
        Ok(route)
    }

    /// Called when the connection fails: the engine may have restarted at another address.
    pub(super) async fn forget(&self, host: &str, port: u16) {
        self.known.lock().await.remove(&(host.to_owned(), port));
    }
}

async fn query(host: &str, port: u16) -> io::Result<Route> {
    let mut socket = TcpStream::connect((host, port)).await?;
    let query = "prefill_dp_rank=0&prefill_cp_rank=0&target_tp_rank=0&target_pp_rank=0";
    let request = format!("GET /route?{query} HTTP/1.1\r\nHost: {host}:{port}\r\nConnection: close\r\n\r\n");
    socket.write_all(request.as_bytes()).await?;
    let mut answer = Vec::new();
    socket.take(MAX_ANSWER_BYTES).read_to_end(&mut answer).await?;
    let answer = String::from_utf8_lossy(&answer);
    match answer.split_once("\r\n\r\n") {
        Some((head, body)) if head.starts_with("HTTP/1.1 200") => serde_json::from_str(body).map_err(io::Error::other),
        _ => Err(io::Error::other("the bootstrap server did not return a route")),
    }
}
