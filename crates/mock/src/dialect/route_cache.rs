//! A decode engine's cache of prefill engines' addresses, which their bootstrap servers give.

use std::collections::HashMap;
use std::io;
use std::time::Duration;

use serde::Deserialize;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::Mutex;

const TIMEOUT: Duration = Duration::from_secs(5);
const MAX_ANSWER_BYTES: u64 = 1 << 16;

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
