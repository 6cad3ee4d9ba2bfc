//! Whatever is wrong: a status and a message that names it, and the engine goes on as before.

use baton_cpu::{KvDtype, StorageDtype};
use serde_json::{Value, json};

use crate::client::{Reply, call};
use crate::engines::{Node, OTHER_STORY, STORY, Setup, completion, three_calls, with};

const CALLS: [&str; 3] = ["prep_recv", "remote_send", "start_generate"];

/// `param` and message of an error in OpenAI's shape.
fn refused(reply: &Reply, status: u16) -> (Option<String>, String) {
    assert_eq!(reply.status, status, "{}", reply.body);
    let error = reply.json()["error"].clone();
    assert!(error["type"].is_string() && error.get("code").is_some(), "{error}");
    (error["param"].as_str().map(str::to_owned), error["message"].as_str().unwrap().to_owned())
}

async fn still_serves(prefill: &Node, decode: &Node) {
    let body = with(&completion(OTHER_STORY), json!({"user": "good"}));
    let expected = prefill.post_ok("/v1/completions", &body).await["choices"].clone();
    let (_, answer) = three_calls(prefill, decode, &body, -1).await;
    assert_eq!(answer.json()["choices"], expected);
    for node in [prefill, decode] {
        node.check_all_given_back().await;
    }
}

#[tokio::test]
async fn every_field_is_checked() {
    let (prefill, decode) = (Setup::default().start().await, Setup::default().start().await);
    let body = completion(STORY);
    let prepared =
        decode.post_ok("/microserving/prep_recv", &with(&body, json!({"user": "x", "end": -1, "lease_ms": 200}))).await;
    let good = with(
        &body,
        json!({"user": "u", "begin": 0, "end": -1, "recv_rank": 0, "kv_addr_info": prepared["kv_append_metadata"]}),
    );
    let all = 0..3;
    let table: [(Value, std::ops::Range<usize>, u16, &str); 33] = [
        (json!({"prompt": null}), all.clone(), 400, "prompt"),
        (json!({"prompt": 7}), all.clone(), 400, "prompt"),
        (json!({"prompt": []}), all.clone(), 400, "prompt"),
        (json!({"prompt": [4096]}), all.clone(), 400, "prompt"),
        (json!({"prompt": [-1]}), all.clone(), 400, "prompt"),
        (json!({"prompt": ["a", "b"]}), all.clone(), 400, "prompt"),
        (json!({"prompt": vec![5; 5000]}), all.clone(), 400, "prompt"),
        (json!({"model": "gpt-4"}), all.clone(), 404, "model"),
        (json!({"temperature": 9}), all.clone(), 400, "temperature"),
        (json!({"n": 0}), all.clone(), 400, "n"),
        (json!({"max_tokens": "many"}), all.clone(), 400, "max_tokens"),
        (json!({"user": 7}), all.clone(), 400, "user"),
        (json!({"user": ""}), all.clone(), 400, "user"),
        (json!({"user": "x".repeat(513)}), all.clone(), 400, "user"),
        (json!({"user": null}), 0..1, 400, "user"),
        (json!({"end": null}), 0..2, 400, "end"),
        (json!({"end": "-1"}), 0..2, 400, "end"),
        (json!({"end": 0.5}), 0..2, 400, "end"),
        (json!({"end": 10_000}), 0..2, 400, "end"),
        (json!({"end": -10_000}), 0..2, 400, "end"),
        (json!({"end": i64::MIN}), 0..2, 400, "end"),
        (json!({"lease_ms": 0}), 0..1, 400, "lease_ms"),
        (json!({"lease_ms": 600_001}), 0..1, 400, "lease_ms"),
        (json!({"begin": null}), 1..3, 400, "begin"),
        (json!({"begin": [0]}), 1..3, 400, "begin"),
        (json!({"begin": 10_000}), 1..3, 400, "begin"),
        (json!({"begin": -1, "end": 5}), 1..2, 400, "begin"),
        (json!({"recv_rank": -1}), 1..2, 400, "recv_rank"),
        (json!({"recv_rank": "0"}), 1..2, 400, "recv_rank"),
        (json!({"kv_addr_info": null}), 1..2, 400, "kv_addr_info"),
        (json!({"kv_addr_info": {"address": "10.0.0.1"}}), 1..2, 400, "kv_addr_info"),
        (json!({"kv_addr_info": "not base64"}), 1..2, 400, "kv_addr_info"),
        (json!({"kv_addr_info": "AXQAAAIBAg=="}), 1..2, 400, "kv_addr_info"),
    ];
    for (fields, calls, status, param) in table {
        for name in &CALLS[calls] {
            let reply = decode.post(&format!("/microserving/{name}"), &with(&good, fields.clone())).await;
            let (named, message) = refused(&reply, status);
            assert_eq!(named.as_deref(), Some(param), "{name} {fields}: {message}");
        }
    }
    still_serves(&prefill, &decode).await;
}

#[tokio::test]
async fn what_is_no_call_at_all_is_refused() {
    let (prefill, decode) = (Setup::default().start().await, Setup::default().start().await);
    for name in CALLS {
        let path = format!("/microserving/{name}");
        for bytes in [&b""[..], b"{", b"[]", b"null", b"\xff\xfe"] {
            refused(&call(decode.address, "POST", &path, bytes).await, 400);
        }
        refused(&decode.get(&path).await, 405);
    }
    refused(&decode.post("/microserving/query", &json!({})).await, 404);
    refused(&decode.post("/debug/audit", &json!({})).await, 405);
    still_serves(&prefill, &decode).await;
}

#[tokio::test]
async fn engines_that_do_not_fit_together_say_how() {
    let decode = Setup::default().start().await;
    let body = with(&completion(STORY), json!({"user": "u", "end": -1, "begin": 0}));
    let prepared = decode.post_ok("/microserving/prep_recv", &body).await;
    let send = with(&body, json!({"kv_addr_info": prepared["kv_append_metadata"]}));

    let f32 = Setup { dtype: StorageDtype::F32, ..Setup::default() };
    let int8_kv = Setup { kv_dtype: KvDtype::Int8, ..Setup::default() };
    for other in [f32, int8_kv] {
        let other = other.start().await;
        let (param, message) = refused(&other.post("/microserving/remote_send", &send).await, 409);
        assert_eq!(param.as_deref(), Some("kv_addr_info"));
        for node in [&decode, &other] {
            assert!(message.contains(&node.handle.info().numerics_id), "{message}");
        }
    }

    let tokenizer = format!("{} ", Setup::default().tokenizer);
    let other = Setup { tokenizer, ..Setup::default() }.start().await;
    let (_, message) = refused(&other.post("/microserving/remote_send", &send).await, 409);
    assert!(message.contains("tokenizers differ: ours "), "{message}");

    let prefill = Setup::default().start().await;
    let mixed_up = with(&send, json!({"prompt": OTHER_STORY}));
    let (param, message) = refused(&prefill.post("/microserving/remote_send", &mixed_up).await, 409);
    assert_eq!(param.as_deref(), Some("prompt"), "{message}");
    let mixed_up = with(&mixed_up, json!({"begin": -1}));
    let (param, message) = refused(&decode.post("/microserving/start_generate", &mixed_up).await, 409);
    assert_eq!(param.as_deref(), Some("prompt"), "{message}");

    // That has used the reservation up: sending to it fails.
    decode.check_all_given_back().await;
    let (_, message) = refused(&prefill.post("/microserving/remote_send", &send).await, 409);
    assert!(message.contains("has taken none of it"), "{message}");
    still_serves(&prefill, &decode).await;
}

#[tokio::test]
async fn a_prompt_that_cannot_be_reserved_is_refused_and_can_be_served_here() {
    let decode = Setup { pages: 8, ..Setup::default() }.start().await;
    let ids: Vec<u32> = (5..205).collect();
    let body = with(&completion(json!(ids)), json!({"user": "large", "end": -1, "begin": 0}));
    refused(&decode.post("/microserving/prep_recv", &body).await, 422);
    let expected = decode.post_ok("/v1/completions", &completion(json!(ids))).await;
    assert_eq!(decode.post_ok("/microserving/start_generate", &body).await["choices"], expected["choices"]);
    decode.check_all_given_back().await;
}
