//! A gateway with an API key answers to those who send it.

use baton_gateway::{ApiKey, GatewayConfig};
use serde_json::json;

use crate::client::call_with;
use crate::server::{Options, Server, completion};

#[tokio::test]
async fn what_costs_something_needs_the_key() {
    let gateway = GatewayConfig { api_key: Some(ApiKey::new("s3cret")), ..GatewayConfig::default() };
    let server = Server::with(Options { gateway, ..Options::default() }).await;
    let completion = completion(json!({"prompt": []})).to_string();
    let table = [
        ("GET", "/health", 200, 200),
        ("GET", "/ready", 200, 200),
        ("GET", "/metrics", 200, 200),
        ("OPTIONS", "/v1/completions", 204, 204),
        ("GET", "/v1/models", 401, 200),
        ("GET", "/v1/models/storyteller-11m", 401, 200),
        ("POST", "/v1/completions", 401, 400),
        ("POST", "/v1/chat/completions", 401, 400),
        ("POST", "/tokenize", 401, 400),
        ("POST", "/detokenize", 401, 400),
        ("GET", "/v1/completions", 401, 405),
        ("GET", "/no/such/path", 401, 404),
    ];
    for (method, path, without, with) in table {
        for (header, status) in [
            ("", without),
            ("authorization: Bearer s3cre\r\n", without),
            ("authorization: Basic s3cret\r\n", without),
            ("authorization: Bearer s3cret\r\n", with),
            ("authorization: bearer s3cret\r\n", with),
        ] {
            let body = if method == "POST" { completion.as_bytes() } else { b"" };
            let reply = call_with(server.address, method, path, header, body).await;
            assert_eq!(reply.status, status, "{method} {path} {header}: {}", reply.body);
            assert_eq!(reply.header("access-control-allow-origin"), Some("*"));
            if status == 401 {
                assert_eq!(reply.header("www-authenticate"), Some("Bearer"));
                let error = reply.json()["error"].clone();
                assert_eq!(
                    (&error["code"], &error["type"]),
                    (&json!("invalid_api_key"), &json!("invalid_request_error"))
                );
                let needed =
                    header.contains("Bearer") || error["message"].as_str().unwrap().contains("needs an API key");
                assert!(needed && !reply.body.contains("s3cre"), "{}", reply.body);
            }
        }
    }
    let metrics = server.get("/metrics").await.body;
    assert!(metrics.contains(r#"baton_http_requests_total{path="/v1/models",code="401"} 3"#), "{metrics}");
}
