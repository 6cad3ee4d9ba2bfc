//! HTTP/1.1 as it is on the wire, so that tests see the bytes.

use std::net::SocketAddr;
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) headers: String,
    pub(crate) body: String,
}

impl Reply {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.body))
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let mut lines = self.headers.lines().filter_map(|line| line.split_once(": "));
        lines.find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }

    /// The data of all events.
    pub(crate) fn events(&self) -> Vec<&str> {
        let events = self.body.strip_suffix("\n\n").unwrap().split("\n\n");
        events.map(|event| event.strip_prefix("data: ").unwrap()).collect()
    }

    /// All events but [DONE], which must be there.
    pub(crate) fn chunks(&self) -> Vec<Value> {
        let mut events = self.events();
        assert_eq!(events.pop(), Some("[DONE]"));
        events.into_iter().map(|event| serde_json::from_str(event).unwrap()).collect()
    }
}

pub(crate) async fn call(address: SocketAddr, method: &str, path: &str, body: &[u8]) -> Reply {
    call_with(address, method, path, "", body).await
}

/// `headers`: whole lines.
pub(crate) async fn call_with(address: SocketAddr, method: &str, path: &str, headers: &str, body: &[u8]) -> Reply {
    let mut connection = Connection::open_with(address, method, path, headers, body).await;
    connection.read_to_end().await
}

/// A request that has been sent, with an answer that may come bit by bit.
pub(crate) struct Connection {
    stream: TcpStream,
    received: Vec<u8>,
}

impl Connection {
    pub(crate) async fn open(address: SocketAddr, method: &str, path: &str, body: &[u8]) -> Self {
        Self::open_with(address, method, path, "", body).await
    }

    async fn open_with(address: SocketAddr, method: &str, path: &str, headers: &str, body: &[u8]) -> Self {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let head = format!(
            "{method} {path} HTTP/1.1\r\nhost: test\r\nconnection: close\r\norigin: http://example.org\r\n{headers}\
             content-length: {}\r\n\r\n",
            body.len()
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        stream.write_all(body).await.unwrap();
        Self { stream, received: Vec::new() }
    }

    /// Waits until the raw answer so far contains `text`.
    pub(crate) async fn read_until(&mut self, text: &str) {
        while !String::from_utf8_lossy(&self.received).contains(text) {
            assert!(self.read().await > 0, "ended before {text:?}: {}", String::from_utf8_lossy(&self.received));
        }
    }

    pub(crate) fn received(&self) -> String {
        String::from_utf8_lossy(&self.received).into_owned()
    }

    pub(crate) async fn read_to_end(&mut self) -> Reply {
        while self.read().await > 0 {}
        let text = String::from_utf8(std::mem::take(&mut self.received)).unwrap();
        let (headers, body) = text.split_once("\r\n\r\n").unwrap();
        let status = headers.split(' ').nth(1).unwrap().parse().unwrap();
        let chunked = headers.to_lowercase().contains("transfer-encoding: chunked");
        Reply { status, headers: headers.to_owned(), body: if chunked { unchunked(body) } else { body.to_owned() } }
    }

    async fn read(&mut self) -> usize {
        let read = self.stream.read_buf(&mut self.received);
        tokio::time::timeout(PATIENCE, read).await.expect("an answer in time").unwrap()
    }
}

fn unchunked(mut body: &str) -> String {
    let mut out = String::new();
    loop {
        let (size, rest) = body.split_once("\r\n").unwrap();
        let size = usize::from_str_radix(size, 16).unwrap();
        if size == 0 {
            return out;
        }
        out += &rest[..size];
        body = &rest[size + 2..];
    }
}
