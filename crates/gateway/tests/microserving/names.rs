//! `user` is one request at a time, and a caller that hangs up leaves nothing behind.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::client::Connection;
use crate::engines::{DEFAULT_LEASE, Node, STORY, Setup, completion, eventually, with};

fn endless(user: &str) -> Value {
    with(&completion(STORY), json!({"user": user, "begin": 0, "end": -1, "max_tokens": 1500, "stream": true}))
}

async fn open(node: &Node, call: &str, body: &Value) -> Connection {
    Connection::open(node.address, "POST", &format!("/microserving/{call}"), body.to_string().as_bytes()).await
}

#[tokio::test]
async fn a_duplicate_in_flight_is_refused_and_the_first_goes_on() {
    let decode = Setup::default().start().await;
    let body = with(&completion(STORY), json!({"user": "twin", "begin": 0, "end": -1}));
    decode.post_ok("/microserving/prep_recv", &body).await;
    let reply = decode.post("/microserving/prep_recv", &body).await;
    assert_eq!((reply.status, &reply.json()["error"]["param"]), (409, &json!("user")), "{}", reply.body);
    decode.post_ok("/microserving/start_generate", &body).await;

    let mut first = open(&decode, "start_generate", &endless("twin")).await;
    first.read_until("data: ").await;
    for call in ["prep_recv", "start_generate"] {
        assert_eq!(decode.post(&format!("/microserving/{call}"), &body).await.status, 409, "{call}");
    }
    let other = with(&body, json!({"user": "another"}));
    decode.post_ok("/microserving/start_generate", &other).await;
    let reply = first.read_to_end().await;
    assert_eq!(reply.chunks().last().unwrap()["choices"][0]["finish_reason"], "length");
    decode.post_ok("/microserving/start_generate", &body).await;
}

#[tokio::test]
async fn a_caller_that_hangs_up_leaves_nothing_behind() {
    let (prefill, decode) = (Setup::default().start().await, Setup::default().start().await);
    // In mid-stream.
    let mut stream = open(&decode, "start_generate", &endless("a")).await;
    stream.read_until("data: ").await;
    drop(stream);
    decode.check_all_given_back().await;
    assert_eq!(decode.handle.report().counters.aborted, 1);
    assert!(decode.handle.report().counters.generated_tokens < 1500);

    // While the request waits for KV that no engine sends.
    let body = with(&endless("b"), json!({"begin": -1}));
    let prepared = decode.post_ok("/microserving/prep_recv", &body).await;
    let waiting = open(&decode, "start_generate", &body).await;
    eventually("it waits", async || decode.handle.report().load.waiting == 1).await;
    drop(waiting);
    decode.check_all_given_back().await;

    // While KV is being sent to an engine that no longer wants it.
    let send = with(&endless("c"), json!({"kv_addr_info": prepared["kv_append_metadata"]}));
    for _ in 0..5 {
        drop(open(&prefill, "remote_send", &send).await);
    }
    prefill.check_all_given_back().await;
    assert_eq!(prefill.post("/microserving/remote_send", &send).await.status, 409, "the reservation is gone");
}

#[tokio::test]
async fn a_caller_that_never_comes_back_loses_its_lease() {
    let decode = Setup::default().start().await;
    let body = with(&completion(STORY), json!({"user": "gone", "end": -1, "lease_ms": 6000}));
    let leased = Instant::now();
    decode.post_ok("/microserving/prep_recv", &body).await;
    assert!(decode.handle.report().load.reserved_pages > 0);
    assert_eq!(decode.get("/debug/audit").await.json()["reservations"], 1);
    decode.check_all_given_back().await;
    assert_eq!(decode.handle.report().counters.leases_expired, 1);
    assert!(leased.elapsed() < DEFAULT_LEASE, "its own lease was ignored");
    // The name is free when the engine has noticed, a moment later.
    let begun = Instant::now();
    loop {
        let reply = decode.post("/microserving/prep_recv", &body).await;
        match reply.status {
            200 => return,
            409 if begun.elapsed() < Duration::from_secs(60) => tokio::time::sleep(Duration::from_millis(5)).await,
            _ => panic!("{}", reply.body),
        }
    }
}
