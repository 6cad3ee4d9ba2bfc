//! Models, readiness, metrics, tokens and CORS.

use serde_json::json;

use crate::client::call;
use crate::server::{MODEL, Options, Server, completion, tokenizer};

#[tokio::test]
async fn models() {
    let server = Server::start().await;
    let list = server.get("/v1/models").await.json();
    assert_eq!((&list["object"], &list["data"][0]["id"]), (&json!("list"), &json!(MODEL)));
    assert_eq!(server.get(&format!("/v1/models/{MODEL}")).await.json(), list["data"][0]);
    assert_eq!(list["data"][0]["object"], "model");
    let sampling = json!({"temperature": 0.7, "top_p": 0.95, "top_k": null, "min_p": 0.0, "repetition_penalty": 1.0,
        "max_new_tokens": 256, "source": "neutral"});
    assert_eq!(list["data"][0]["default_sampling"], sampling);
}

#[tokio::test]
async fn health_is_not_readiness() {
    for engines in [true, false] {
        let server = Server::with(Options { engines, ..Options::default() }).await;
        assert_eq!(server.get("/health").await.status, 200);
        assert_eq!(server.get("/ready").await.status, if engines { 200 } else { 503 });
        let up = format!("baton_engine_up{{engine=\"engine-0\",role=\"mixed\"}} {}", u8::from(engines));
        assert!(server.get("/metrics").await.body.contains(&up));
    }
}

#[tokio::test]
async fn metrics_count_what_happened() {
    let mut server = Server::start().await;
    server.post("/v1/completions", completion(json!({}))).await;
    server.post("/v1/completions", completion(json!({"n": 0}))).await;
    server.get("/no/such/path").await;
    let reply = server.get("/metrics").await;
    assert_eq!(reply.header("content-type"), Some("text/plain; version=0.0.4; charset=utf-8"));
    for line in [
        r#"baton_http_requests_total{path="/v1/completions",code="200"} 1"#,
        r#"baton_http_requests_total{path="/v1/completions",code="400"} 1"#,
        r#"baton_http_requests_total{path="other",code="404"} 1"#,
        "baton_completion_tokens_total 2",
        "baton_time_to_first_token_seconds_count 1",
        "baton_inter_token_seconds_count 1",
        "baton_request_seconds_count 1",
        r#"baton_requests_running{engine="engine-0"} 3"#,
        r#"baton_preemptions_total{engine="engine-0",reason="out_of_pages"} 7"#,
        r#"baton_busy_seconds_total{engine="engine-0"} 1.5"#,
        r#"baton_kv_shard_bytes_received_total{engine="engine-0",shard="1"} 2"#,
        r#"baton_kv_pages{engine="engine-0",state="used"} 10"#,
        r#"baton_kv_pages{engine="engine-0",state="cached"} 30"#,
        r#"baton_info{model="storyteller-11m",version="0.1.0"} 1"#,
    ] {
        assert!(reply.body.lines().any(|have| have == line), "{line} in\n{}", reply.body);
    }
}

#[tokio::test]
async fn tokens_and_back() {
    let mut server = Server::start().await;
    let text = "Once upon a time, a naïve café owner 😀";
    let tokens = server.post("/tokenize", json!({"prompt": text})).await.json();
    let expected = tokenizer().encode(text, baton_text::SpecialTokens::Add).unwrap();
    assert_eq!(tokens, json!({"tokens": expected, "count": expected.len(), "max_model_len": 2048}));
    assert_eq!(server.post("/detokenize", json!({"tokens": expected})).await.json(), json!({"prompt": text}));

    let messages = json!([{"role": "user", "content": "Hi"}]);
    let chat = server.post("/tokenize", json!({"model": MODEL, "messages": messages})).await.json();
    let back = server.post("/detokenize", json!({"tokens": chat["tokens"]})).await.json();
    assert_eq!(back["prompt"], "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n");
    let long = server.post("/tokenize", json!({"prompt": "cat ".repeat(9000)})).await.json();
    assert!(long["count"].as_u64().unwrap() >= 9000, "counting has no limit");
}

#[tokio::test]
async fn any_page_may_call() {
    let server = Server::start().await;
    let preflight = call(server.address, "OPTIONS", "/v1/chat/completions", b"").await;
    assert_eq!(preflight.status, 204);
    assert_eq!(preflight.header("access-control-allow-headers"), Some("authorization, content-type"));
    for path in ["/v1/models", "/no/such/path"] {
        assert_eq!(server.get(path).await.header("access-control-allow-origin"), Some("*"));
    }
}
