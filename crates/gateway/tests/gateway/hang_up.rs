//! A client that goes away takes its request with it.

use std::time::Duration;

use baton_core::FinishReason;
use baton_gateway::GatewayConfig;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::client::Connection;
use crate::server::{Options, Server, chat, completion};

/// Half of the time after which a client that does not read is given up.
const SOON: Duration = Duration::from_secs(30);

#[tokio::test]
async fn before_a_whole_answer() {
    let mut server = Server::start().await;
    for path in ["/v1/completions", "/v1/chat/completions"] {
        let body = if path.contains("chat") { chat(json!({})) } else { completion(json!({"prompt": ["a", "b"]})) };
        let connection = Connection::open(server.address, "POST", path, body.to_string().as_bytes()).await;
        let mut started = server.started().await;
        started.prompt(0);
        started.generate(0, " the", None);
        drop(connection);
        tokio::time::timeout(SOON, started.dropped).await.expect("soon").expect("dropped");
        if !path.contains("chat") {
            tokio::time::timeout(SOON, server.started().await.dropped).await.expect("soon").expect("both prompts");
        }
    }
    let metrics = server.get("/metrics").await.body;
    assert!(metrics.contains(r#"baton_http_requests_total{path="/v1/completions",code="499"} 1"#), "{metrics}");
    assert!(metrics.contains("baton_requests_in_flight 0"), "{metrics}");
}

#[tokio::test]
async fn in_the_middle_of_a_stream() {
    let mut server = Server::start().await;
    let body = completion(json!({"stream": true, "n": 2})).to_string();
    let mut connection = Connection::open(server.address, "POST", "/v1/completions", body.as_bytes()).await;
    let mut started = server.started().await;
    started.prompt(0);
    started.generate(1, " the", None);
    connection.read_until("\" the\"").await;
    drop(connection);
    tokio::time::timeout(SOON, started.dropped).await.expect("soon").expect("dropped");
}

#[tokio::test]
async fn before_a_stream_begins() {
    let mut server = Server::start().await;
    let body = completion(json!({"stream": true})).to_string();
    let connection = Connection::open(server.address, "POST", "/v1/completions", body.as_bytes()).await;
    let started = server.started().await;
    drop(connection);
    tokio::time::timeout(SOON, started.dropped).await.expect("soon").expect("dropped");
}

#[tokio::test]
async fn in_the_middle_of_its_own_request() {
    let mut server = Server::start().await;
    let mut raw = TcpStream::connect(server.address).await.unwrap();
    let half = b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 9999\r\n\r\n{";
    raw.write_all(half).await.unwrap();
    drop(raw);
    assert_eq!(server.post("/v1/completions", completion(json!({}))).await.status, 200);
}

#[tokio::test]
async fn a_client_that_stops_reading_is_given_up() {
    let gateway = GatewayConfig { stall_timeout: Duration::from_millis(200), ..GatewayConfig::default() };
    let mut server = Server::with(Options { gateway, ..Options::default() }).await;
    let body = completion(json!({"stream": true, "max_tokens": 2000})).to_string();
    let _unread = Connection::open(server.address, "POST", "/v1/completions", body.as_bytes()).await;
    let mut started = server.started().await;
    started.prompt(0);
    // Far more than the buffers of two sockets hold.
    for _ in 0..100_000 {
        started.generate(0, " the", None);
    }
    tokio::time::timeout(SOON, started.dropped).await.expect("soon").expect("dropped");
}

#[tokio::test]
async fn a_head_that_does_not_come_is_not_waited_for() {
    let gateway = GatewayConfig { head_timeout: Duration::from_millis(200), ..GatewayConfig::default() };
    let server = Server::with(Options { gateway, ..Options::default() }).await;
    for part in ["", "POST /v1/compl", "GET /health HTTP/1.1\r\nhost: x\r\n\r\n"] {
        let mut raw = TcpStream::connect(server.address).await.unwrap();
        raw.write_all(part.as_bytes()).await.unwrap();
        let mut rest = Vec::new();
        tokio::time::timeout(SOON, raw.read_to_end(&mut rest)).await.expect("closed soon").unwrap();
    }
}

#[tokio::test]
async fn shutdown_lets_requests_finish() {
    let mut server = Server::start().await;
    let body = completion(json!({"stream": true})).to_string();
    let mut connection = Connection::open(server.address, "POST", "/v1/completions", body.as_bytes()).await;
    let mut started = server.started().await;
    started.prompt(0);
    started.generate(0, " the", None);
    connection.read_until("\" the\"").await;
    server.stop();
    let closed = async {
        while TcpStream::connect(server.address).await.is_ok() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(SOON, closed).await.expect("no new connections");
    assert!(!server.task.is_finished());
    started.generate(0, " cat", Some(FinishReason::Length));
    assert!(connection.read_to_end().await.body.ends_with("data: [DONE]\n\n"));
    tokio::time::timeout(SOON, server.task).await.expect("soon").unwrap().unwrap();
}
