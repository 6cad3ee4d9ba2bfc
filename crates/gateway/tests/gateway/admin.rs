//! The router is changed while it serves, by holders of the secret.

use std::sync::{Arc, Mutex};

use baton_core::{FinishReason, ServeError};
use baton_gateway::{ApiKey, GatewayConfig, Membership};
use baton_protocol::Secret;
use baton_router::{EngineId, Fleet, Parameters, Role, strategy};
use futures_util::future::BoxFuture;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use crate::client::{Reply, call_with};
use crate::engine::{DrivenEngine, Started};
use crate::server::{Options, Server, completion, tokenizer};

const SECRET: &str = "0123456789abcdef";

/// Engines join from every address but one.
pub(crate) struct Joins {
    fleet: Arc<Fleet>,
    /// What reaches those that have joined.
    started: Mutex<Vec<mpsc::UnboundedReceiver<Started>>>,
}

const UNREACHABLE: &str = "10.0.0.9:1";

impl Joins {
    pub(crate) fn new(fleet: Arc<Fleet>) -> Self {
        Self { fleet, started: Mutex::default() }
    }
}

impl Membership for Joins {
    fn join(&self, address: String, role: Role) -> BoxFuture<'static, Result<EngineId, ServeError>> {
        if address == UNREACHABLE {
            return Box::pin(async { Err(ServeError::engine("it cannot be reached")) });
        }
        let (engine, started) = DrivenEngine::new(Arc::new(tokenizer()));
        self.started.lock().unwrap().push(started);
        let id = self.fleet.add(address, role).unwrap();
        self.fleet.engine_ready(id, Arc::new(engine));
        Box::pin(async move { Ok(id) })
    }

    fn leave(&self, engine: EngineId) -> Result<(), ServeError> {
        let fleet = Arc::clone(&self.fleet);
        fleet.remove(engine).unwrap();
        tokio::spawn(async move { fleet.drained(engine).await });
        Ok(())
    }

    fn address(&self, engine: EngineId) -> Option<String> {
        (engine != EngineId(0)).then(|| self.fleet.name(engine))
    }
}

async fn start(secret: Secret, api_key: Option<&str>) -> Server {
    let gateway = GatewayConfig { api_key: api_key.map(ApiKey::new), ..GatewayConfig::default() };
    Server::with(Options { gateway, secret: Some(secret), ..Options::default() }).await
}

async fn send(server: &Server, method: &str, path: &str, body: Value) -> Reply {
    let header = format!("authorization: Bearer {SECRET}\r\n");
    let body = if body.is_null() { String::new() } else { body.to_string() };
    call_with(server.address, method, path, &header, body.as_bytes()).await
}

fn engine(id: u32, name: &str, role: &str, state: &str) -> Value {
    let address = if id == 0 { Value::Null } else { json!(name) };
    let in_flight = json!({"sequences": 0, "prefill_tokens": 0});
    json!({"id": id, "name": name, "address": address, "role": role, "state": state, "in_flight": in_flight})
}

#[tokio::test]
async fn strategy_and_parameters_are_shown_and_set() {
    let server = start(Secret::new(SECRET), None).await;
    let engines = json!([engine(0, "engine-0", "mixed", "ready")]);
    let shown = send(&server, "GET", "/admin/router", Value::Null).await;
    assert_eq!(shown.json(), json!({"strategy": "least-loaded", "parameters": {}, "engines": engines}));

    for (body, parameters) in [
        (json!({"strategy": "disagg"}), json!({"pd_balance_factor": 0.0})),
        (json!({"strategy": "disagg", "parameters": {"pd_balance_factor": 0.5}}), json!({"pd_balance_factor": 0.5})),
        (json!({"strategy": "disagg", "parameters": {}}), json!({"pd_balance_factor": 0.0})),
        (json!({"strategy": "round-robin", "parameters": null}), json!({})),
    ] {
        let set = send(&server, "PUT", "/admin/router", body.clone()).await;
        let expected = json!({"strategy": body["strategy"], "parameters": parameters, "engines": engines});
        assert_eq!((set.status, set.json()), (200, expected.clone()));
        assert_eq!(send(&server, "GET", "/admin/router", Value::Null).await.json(), expected);
    }
    let metrics = server.get("/metrics").await.body;
    assert!(metrics.contains(r#"baton_http_requests_total{path="/admin/router",code="200"} 9"#), "{metrics}");
}

#[tokio::test]
async fn engines_join_leave_and_change_their_roles() {
    let mut server = start(Secret::new(SECRET), None).await;
    let set = send(&server, "PUT", "/admin/engines/engine-0/role", json!({"role": "prefill"})).await;
    assert_eq!((set.status, set.json()), (200, engine(0, "engine-0", "prefill", "ready")));
    let only = send(&server, "DELETE", "/admin/engines/engine-0", Value::Null).await;
    assert_eq!(only.status, 409, "{}", only.body);

    let joined = send(&server, "POST", "/admin/engines", json!({"address": "10.0.0.2:1", "role": "decode"})).await;
    assert_eq!((joined.status, joined.json()), (201, engine(1, "10.0.0.2:1", "decode", "ready")));
    let joined = send(&server, "POST", "/admin/engines", json!({"address": "10.0.0.3:1"})).await;
    assert_eq!((joined.status, joined.json()), (201, engine(2, "10.0.0.3:1", "mixed", "ready")));

    // The first engine gets a request again, which is open while the engine leaves.
    for other in ["10.0.0.2:1", "10.0.0.3:1"] {
        let left = send(&server, "DELETE", &format!("/admin/engines/{other}"), Value::Null).await;
        assert_eq!((left.status, &left.json()["state"]), (202, &json!("leaving")));
    }
    let address = server.address;
    let body = completion(json!({})).to_string();
    let open = tokio::spawn(async move { call_with(address, "POST", "/v1/completions", "", body.as_bytes()).await });
    let mut started = server.started().await;
    send(&server, "POST", "/admin/engines", json!({"address": "10.0.0.4:1"})).await;
    for _ in 0..2 {
        let leaving = send(&server, "DELETE", "/admin/engines/engine-0", Value::Null).await;
        let view = leaving.json();
        assert_eq!(
            (leaving.status, &view["state"], &view["in_flight"]["sequences"]),
            (202, &json!("leaving"), &json!(1))
        );
    }
    let too_late = send(&server, "PUT", "/admin/engines/engine-0/role", json!({"role": "decode"})).await;
    assert_eq!(too_late.status, 409, "{}", too_late.body);
    started.answer(" the cat", FinishReason::Length);
    assert_eq!(open.await.unwrap().status, 200);
    loop {
        let engines = send(&server, "GET", "/admin/router", Value::Null).await.json()["engines"].clone();
        if engines == json!([engine(3, "10.0.0.4:1", "mixed", "ready")]) {
            return;
        }
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn mistakes_are_named() {
    let server = start(Secret::new(SECRET), None).await;
    let all = strategy("disag", &Parameters::new()).err().unwrap().to_string();
    let role = "\"boss\" is not a role; roles are prefill, decode and mixed";
    for (method, path, body, status, param, message) in [
        ("PUT", "/admin/router", json!({}), 400, "strategy", "strategy is missing".to_owned()),
        ("PUT", "/admin/router", json!({"strategy": 7}), 400, "strategy", "expected a string".to_owned()),
        ("PUT", "/admin/router", json!({"strategy": "disag"}), 400, "strategy", all.clone()),
        (
            "PUT",
            "/admin/router",
            json!({"strategy": "disagg", "parameters": {"pd_balance_factor": 1}}),
            400,
            "parameters",
            "pd_balance_factor must be at least 0 and below 1, not 1".to_owned(),
        ),
        (
            "PUT",
            "/admin/router",
            json!({"strategy": "disagg", "parameters": {"pd_balance_factor": "x"}}),
            400,
            "parameters",
            "parameters.pd_balance_factor: expected a number, found the string \"x\"".to_owned(),
        ),
        (
            "PUT",
            "/admin/router",
            json!({"strategy": "round-robin", "parameters": {"n": 1}}),
            400,
            "parameters",
            "round-robin has no parameter \"n\"".to_owned(),
        ),
        (
            "PUT",
            "/admin/router",
            json!({"strategy": "disagg", "paramters": {}}),
            400,
            "paramters",
            "there is no such field".to_owned(),
        ),
        ("PUT", "/admin/engines/engine-0/role", json!({}), 400, "role", "role is missing".to_owned()),
        ("PUT", "/admin/engines/engine-0/role", json!({"role": "boss"}), 400, "role", role.to_owned()),
        ("PUT", "/admin/engines/x/role", json!({"role": "mixed"}), 404, "", "there are engine-0".to_owned()),
        ("DELETE", "/admin/engines/x", Value::Null, 404, "", "no engine \"x\"".to_owned()),
        ("POST", "/admin/engines", json!({"role": "mixed"}), 400, "address", "address is missing".to_owned()),
        ("POST", "/admin/engines", json!({"address": UNREACHABLE}), 503, "", "it cannot be reached".to_owned()),
        ("POST", "/admin/router", json!({}), 405, "", "does not answer to POST".to_owned()),
        ("PUT", "/admin/router", json!({"strategy": "x".repeat(40 << 10)}), 413, "", "32768 bytes".to_owned()),
    ] {
        let reply = send(&server, method, path, body).await;
        let error = &reply.json()["error"];
        assert_eq!(reply.status, status, "{method} {path}: {}", reply.body);
        assert!(error["message"].as_str().unwrap().contains(&message), "{message}: {}", reply.body);
        assert_eq!(error["param"].as_str().unwrap_or_default(), param, "{}", reply.body);
    }
    let unchanged = send(&server, "GET", "/admin/router", Value::Null).await.json();
    assert_eq!((&unchanged["strategy"], &unchanged["engines"][0]["role"]), (&json!("least-loaded"), &json!("mixed")));
}

#[tokio::test]
async fn the_secret_is_needed_whatever_the_api_key_is() {
    let right = format!("authorization: Bearer {SECRET}\r\n");
    for api_key in [None, Some("key")] {
        let server = start(Secret::new(SECRET), api_key).await;
        for (headers, status) in [
            ("", 401),
            ("authorization: Bearer key\r\n", 401),
            ("authorization: Bearer 0123456789abcde\r\n", 401),
            (&right, 200),
        ] {
            let put = json!({"strategy": "round-robin"}).to_string();
            for (method, body) in [("GET", ""), ("PUT", put.as_str())] {
                let reply = call_with(server.address, method, "/admin/router", headers, body.as_bytes()).await;
                assert_eq!(reply.status, status, "{method} {headers}: {}", reply.body);
                assert!(!reply.body.contains(SECRET));
            }
            for (method, path) in
                [("POST", "/admin/engines"), ("DELETE", "/admin/engines/x"), ("PUT", "/admin/engines/x/role")]
            {
                let reply = call_with(server.address, method, path, headers, b"{}").await;
                assert_eq!(reply.status == 401, status == 401, "{method} {path} {headers}: {}", reply.body);
            }
        }
        // The secret opens nothing else.
        let models = call_with(server.address, "GET", "/v1/models", &right, b"").await;
        assert_eq!(models.status, if api_key.is_some() { 401 } else { 200 });
    }
}

#[tokio::test]
async fn without_a_secret_nothing_can_be_changed() {
    let open = start(Secret::none(), None).await;
    for headers in ["", "authorization: Bearer \r\n"] {
        let reply = call_with(open.address, "GET", "/admin/router", headers, b"").await;
        assert_eq!(reply.status, 403, "{}", reply.body);
    }
    let none = Server::start().await;
    assert_eq!(none.get("/admin/router").await.status, 404);
}
