//! One port: sessions and HTTP side by side, both only with the secret.

use baton_core::{Attempt, EngineEvent, GenerateRequest, Limits, RequestId, SamplingParams, TokenId};
use baton_protocol::{Engine, Secret, SessionClient, SessionError};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::client::call_with;
use crate::engines::{Setup, completion, with};

const SECRET: &str = "0123456789abcdef";

fn request() -> GenerateRequest {
    GenerateRequest {
        id: RequestId(1),
        attempt: Attempt(0),
        prompt: [TokenId(5), TokenId(6)].into(),
        outputs: vec![Vec::new()],
        ended: vec![false],
        sampling: SamplingParams::greedy(),
        limits: Limits { max_tokens: 3, min_tokens: 0, stop_tokens: Vec::new() },
        logprobs: None,
        prompt_logprobs: None,
        adapter: None,
        pooling: None,
        affinity: None,
    }
}

#[tokio::test]
async fn sessions_and_http_share_a_port() {
    let node = Setup { secret: Secret::new(SECRET), ..Setup::default() }.start().await;
    let session = SessionClient::connect(node.address, &Secret::new(SECRET)).await.unwrap();
    let mut stream = session.start_generate(request(), None).await.unwrap();
    let mut tokens = Vec::new();
    while let Some(event) = stream.next().await {
        if let EngineEvent::Token(event) = event {
            tokens.push(event.token.0);
        }
    }
    let bearer = format!("authorization: Bearer {SECRET}\r\n");
    let body = with(&completion(json!([5, 6])), json!({"max_tokens": 3})).to_string();
    let reply = call_with(node.address, "POST", "/v1/completions", &bearer, body.as_bytes()).await;
    let ids = json!({"tokens": tokens}).to_string();
    let text = call_with(node.address, "POST", "/detokenize", &bearer, ids.as_bytes()).await;
    assert_eq!(reply.json()["choices"][0]["text"], text.json()["prompt"]);
    let wrong = SessionClient::connect(node.address, &Secret::new("wrong")).await.err().unwrap();
    assert!(matches!(wrong, SessionError::Refused(_)), "{wrong}");
}

#[tokio::test]
async fn a_router_that_dies_after_prep_recv_gives_the_pages_back() {
    let node = Setup::default().start().await;
    let session = SessionClient::connect(node.address, &Secret::none()).await.unwrap();
    let prompt = (0..200).map(|at| TokenId(at % 90 + 5)).collect();
    let reservation = session.prep_recv(&GenerateRequest { prompt, ..request() }, 199).await.unwrap();
    let audited = node.get("/debug/audit").await.json();
    assert_eq!((&audited["reservations"], &audited["reserved_pages"]), (&json!(1), &json!(7)), "{audited}");
    // A process that is killed sends nothing; its connection ends.
    std::mem::forget(reservation);
    drop(session);
    node.check_all_given_back().await;
    assert_eq!(node.handle.report().counters.leases_expired, 0);
}

#[tokio::test]
async fn nothing_is_served_without_the_secret() {
    let node = Setup { secret: Secret::new(SECRET), ..Setup::default() }.start().await;
    let right = format!("authorization: Bearer {SECRET}\r\n");
    let routes = [
        ("POST", "/microserving/prep_recv"),
        ("POST", "/microserving/remote_send"),
        ("POST", "/microserving/start_generate"),
        ("POST", "/v1/completions"),
        ("GET", "/v1/models"),
        ("GET", "/debug/audit"),
        ("GET", "/no/such/route"),
    ];
    for (method, path) in routes {
        for (headers, message) in [
            ("", "engines need the deployment's secret: send the header `Authorization: Bearer SECRET`"),
            ("authorization: Basic eDp5\r\n", "engines need the deployment's secret"),
            ("authorization: Bearer\r\n", "engines need the deployment's secret"),
            ("authorization: Bearer wrong\r\n", "this is not the secret of the engine's deployment"),
            ("authorization: Bearer 0123456789abcde\r\n", "this is not the secret"),
            ("authorization: Bearer 0123456789abcdef0\r\n", "this is not the secret"),
        ] {
            let reply = call_with(node.address, method, path, headers, b"{}").await;
            assert_eq!(reply.status, 401, "{path} {headers}: {}", reply.body);
            assert_eq!(reply.header("www-authenticate"), Some("Bearer"));
            let error = reply.json()["error"].clone();
            assert!(error["message"].as_str().unwrap().starts_with(message), "{error}");
            assert_eq!(error["code"], "invalid_api_key");
        }
        let reply = call_with(node.address, method, path, &right, b"{}").await;
        assert_ne!(reply.status, 401, "{path}: {}", reply.body);
    }
    // Callers on this machine may look.
    for path in ["/health", "/metrics"] {
        assert_eq!(node.get(path).await.status, 200, "{path}");
    }
    let metrics = call_with(node.address, "GET", "/metrics", "", b"").await.body;
    for line in [
        "baton_http_requests_total{path=\"/microserving/prep_recv\",code=\"401\"} 6",
        "baton_reservations{engine=\"engine\"} 0",
    ] {
        assert!(metrics.lines().any(|have| have == line), "{line} in\n{metrics}");
    }
}

#[tokio::test]
async fn a_model_without_a_tokenizer_still_takes_sessions() {
    let node = Setup { tokenizer: "{}".to_owned(), ..Setup::default() }.start().await;
    assert_eq!(node.get("/health").await.status, 200);
    let reply = node.get("/v1/models").await;
    assert_eq!(reply.status, 500);
    assert!(reply.json()["error"]["message"].as_str().unwrap().contains("tokenizer.json"), "{}", reply.body);
    let session = SessionClient::connect(node.address, &Secret::none()).await.unwrap();
    assert!(session.start_generate(request(), None).await.unwrap().next().await.is_some());
}

#[tokio::test]
async fn garbage_harms_no_other_connection() {
    let node = Setup::default().start().await;
    for bytes in
        [&b"B"[..], b"BREW / HTTP/1.1\r\n\r\n", b"BATN\xff\xff\xff\xff", b"\x16\x03\x01\x02\x00", b"\0", b"GET"]
    {
        let mut socket = TcpStream::connect(node.address).await.unwrap();
        socket.write_all(bytes).await.unwrap();
        socket.shutdown().await.unwrap();
        // Closed, with an answer or without one.
        let _ = socket.read_to_end(&mut Vec::new()).await;
    }
    let _silent = TcpStream::connect(node.address).await.unwrap();
    assert_eq!(node.get("/v1/models").await.status, 200);
}
