//! Where requests went, and why: in a header of their answers, and in a list of the newest.

use baton_core::FinishReason;
use baton_gateway::{ApiKey, GatewayConfig};
use baton_protocol::Secret;
use serde_json::{Value, json};

use crate::client::call_with;
use crate::server::{Options, Server, chat, completion};

/// One whole answer and one stream, routed by this strategy.
async fn served_by(name: &str) -> (Server, Vec<String>) {
    let secret = "0123456789abcdef";
    let mut server = Server::with(Options { secret: Some(Secret::new(secret)), ..Options::default() }).await;
    let (header, body) = (format!("authorization: Bearer {secret}\r\n"), json!({"strategy": name}).to_string());
    let set = call_with(server.address, "PUT", "/admin/router", &header, body.as_bytes()).await;
    assert_eq!(set.status, 200, "{}", set.body);
    let mut routes = Vec::new();
    for (path, body) in
        [("/v1/completions", completion(json!({}))), ("/v1/chat/completions", chat(json!({"stream": true})))]
    {
        let reply = server.post_with(path, body, |started| started.answer(" the cat", FinishReason::Length)).await;
        assert_eq!(reply.status, 200, "{}", reply.body);
        routes.push(reply.header("x-baton-route").unwrap().to_owned());
    }
    (server, routes)
}

#[tokio::test]
async fn answers_name_their_engines() {
    let (server, routes) = served_by("round-robin").await;
    assert_eq!(routes, ["strategy=round-robin, engine=engine-0"; 2]);
    let shown = server.get("/debug/route").await.json();
    assert_eq!(shown["predictions"]["compared"], 0, "it makes no predictions: {shown}");
    let newest = &shown["decisions"][0];
    assert_eq!(
        (&newest["chosen"], &newest["alternatives"], &newest["observed"]["failed"]),
        (&json!({"engine": "engine-0"}), &json!([]), &json!(false))
    );
}

#[tokio::test]
async fn predictions_are_shown_beside_what_happened() {
    let (server, routes) = served_by("auto").await;
    for route in routes {
        assert!(route.starts_with("strategy=auto, engine=engine-0, ttft_ms="), "{route}");
    }
    let shown = server.get("/debug/route").await.json();
    let decisions = shown["decisions"].as_array().unwrap();
    let ids: Vec<_> = decisions.iter().map(|decision| decision["request"].as_u64().unwrap()).collect();
    assert_eq!(ids, [2, 1], "newest first");
    for decision in decisions {
        let positive = |value: &Value| value.as_f64().is_some_and(|value| value > 0.0);
        let expected = &decision["chosen"]["expected"];
        assert!(positive(&expected["ttft_ms"]) && positive(&expected["total_ms"]), "{decision}");
        assert!(
            positive(&decision["observed"]["ttft_ms"]) && positive(&decision["observed"]["total_ms"]),
            "{decision}"
        );
        assert_eq!(decision["observed"]["tokens"], 2);
    }
    assert_eq!(shown["predictions"]["compared"], 2);
    assert!(shown["predictions"]["median_ttft_error"].as_f64().is_some(), "{shown}");
}

#[tokio::test]
async fn they_are_not_for_everybody() {
    let gateway = GatewayConfig { api_key: Some(ApiKey::new("s3cret")), ..GatewayConfig::default() };
    let server = Server::with(Options { gateway, ..Options::default() }).await;
    for (header, status) in [("", 401), ("authorization: Bearer s3cret\r\n", 200)] {
        let reply = call_with(server.address, "GET", "/debug/route", header, b"").await;
        assert_eq!(reply.status, status, "{}", reply.body);
    }
}
