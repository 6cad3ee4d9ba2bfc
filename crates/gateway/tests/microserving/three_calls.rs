//! What routers compose from the three calls gives the text that one engine gives, every time.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::client::{Connection, Reply};
use crate::engines::{DEFAULT_LEASE, OTHER_STORY, STORY, Setup, completion, eventually, three_calls, with};

fn text(reply: &Reply) -> Value {
    assert_eq!(reply.status, 200, "{}", reply.body);
    reply.json()["choices"].clone()
}

#[tokio::test]
async fn a_hand_off_onto_a_warm_prefix_cache() {
    let (prefill, decode, alone) =
        (Setup::default().start().await, Setup::default().start().await, Setup::default().start().await);
    let ids = alone.tokens(STORY).await;
    assert!(ids.len() > 66, "{}", ids.len());
    decode.post_ok("/v1/completions", &completion(OTHER_STORY)).await;
    let sampled = json!({"temperature": 1, "seed": 7, "n": 2, "logprobs": 2});
    let mut warm = 0;
    for (name, prompt, fields) in [
        ("text", json!(STORY), json!({})),
        ("ids", json!(ids), sampled),
        ("one in a list", json!([ids]), json!({"echo": true})),
    ] {
        let body = with(&with(&completion(prompt), fields), json!({"user": name}));
        let expected = text(&alone.post("/v1/completions", &body).await);
        let before = decode.handle.report().counters;
        let (matched, answer) = three_calls(&prefill, &decode, &body, -1).await;
        assert_eq!(text(&answer), expected, "{name}");
        assert_eq!(answer.json()["usage"]["prompt_tokens"], ids.len());
        let after = decode.handle.report().counters;
        // The last token; a second choice shares whole pages only.
        let computed = if body["n"] == 2 { 1 + (ids.len() as u64 - 1) % 32 + 1 } else { 1 };
        assert_eq!(after.prefill_tokens - before.prefill_tokens, computed, "{name}");
        assert_eq!(after.handoffs_received - before.handoffs_received, 1, "{name}");
        assert!(matched >= 32 && matched % 32 == 0, "{name}: {matched}");
        warm += after.kv_pages_received - before.kv_pages_received;
    }
    assert!(warm > 0, "the first of them had pages to receive");
    for node in [&prefill, &decode] {
        node.check_all_given_back().await;
    }
}

#[tokio::test]
async fn streams_say_the_same() {
    let (prefill, decode) = (Setup::default().start().await, Setup::default().start().await);
    let body = completion(STORY);
    let expected = prefill.post_ok("/v1/completions", &body).await["choices"][0]["text"].clone();
    let streamed = with(&body, json!({"user": "s", "stream": true, "stream_options": {"include_usage": true}}));
    let (_, answer) = three_calls(&prefill, &decode, &streamed, -1).await;
    assert_eq!(answer.header("content-type"), Some("text/event-stream; charset=utf-8"));
    let chunks = answer.chunks();
    let streamed: String = chunks.iter().filter_map(|chunk| chunk["choices"][0]["text"].as_str()).collect();
    assert_eq!(json!(streamed), expected);
    assert_eq!(chunks.last().unwrap()["usage"]["completion_tokens"], 12);
}

#[tokio::test]
async fn generation_may_be_started_before_the_kv_is_sent() {
    let (prefill, decode) = (Setup::default().start().await, Setup::default().start().await);
    let body = with(&completion(STORY), json!({"user": "early"}));
    let expected = text(&prefill.post("/v1/completions", &body).await);
    let prepared = decode.post_ok("/microserving/prep_recv", &with(&body, json!({"end": -1}))).await;
    let started = with(&body, json!({"begin": -1})).to_string();
    let mut answer = Connection::open(decode.address, "POST", "/microserving/start_generate", started.as_bytes()).await;
    eventually("the request waits for KV", async || decode.handle.report().load.waiting == 1).await;
    let send = json!({"begin": 0, "end": -1, "kv_addr_info": prepared["kv_append_metadata"], "recv_rank": 0});
    prefill.post_ok("/microserving/remote_send", &with(&body, send)).await;
    assert_eq!(text(&answer.read_to_end().await), expected);
    assert_eq!(decode.handle.report().counters.prefill_tokens, 1);
}

#[tokio::test]
async fn an_engine_may_send_to_itself() {
    let node = Setup::default().start().await;
    let expected = text(&Setup::default().start().await.post("/v1/completions", &completion(STORY)).await);
    let body = with(&completion(STORY), json!({"user": "self"}));
    let prepared = node.post_ok("/microserving/prep_recv", &with(&body, json!({"end": -1}))).await;
    let started = with(&body, json!({"begin": -1})).to_string();
    let mut answer = Connection::open(node.address, "POST", "/microserving/start_generate", started.as_bytes()).await;
    eventually("the request waits for KV", async || node.handle.report().load.waiting == 1).await;
    let send = json!({"begin": 0, "end": -1, "kv_addr_info": prepared["kv_append_metadata"]});
    node.post_ok("/microserving/remote_send", &with(&body, send)).await;
    assert_eq!(text(&answer.read_to_end().await), expected);
    node.check_all_given_back().await;
}

#[tokio::test]
async fn every_split_gives_the_same_text() {
    let (prefill, decode) = (Setup::default().start().await, Setup::default().start().await);
    let ids = prefill.tokens(STORY).await;
    for length in [1, 2, 32, 33, ids.len()] {
        let body = completion(json!(ids[..length]));
        let expected = text(&prefill.post("/v1/completions", &body).await);
        // `end = L`, the last token, a part, nothing; then one that begins where it ends.
        for end in [length as i64, -1, length as i64 / 2, 0] {
            let body = with(&body, json!({"user": format!("{length} {end}")}));
            let (_, answer) = three_calls(&prefill, &decode, &body, end).await;
            assert_eq!(text(&answer), expected, "{length} tokens, split at {end}");
        }
        let body = with(&body, json!({"user": "empty"}));
        let prepared = decode.post_ok("/microserving/prep_recv", &with(&body, json!({"end": length}))).await;
        let send = json!({"begin": length, "end": length, "kv_addr_info": prepared["kv_append_metadata"]});
        assert_eq!(prefill.post_ok("/microserving/remote_send", &with(&body, send)).await, json!({}));
        let answer = decode.post("/microserving/start_generate", &with(&body, json!({"begin": length}))).await;
        assert_eq!(text(&answer), expected, "{length} tokens, nothing sent");
    }
    decode.check_all_given_back().await;
}

#[tokio::test]
async fn kv_that_is_sent_and_not_used_ends_up_in_the_prefix_cache() {
    let (prefill, decode) = (Setup::default().start().await, Setup::default().start().await);
    let ids = prefill.tokens(STORY).await;
    let body = completion(json!(ids));
    let expected = text(&prefill.post("/v1/completions", &body).await);
    let moved = with(&body, json!({"user": "moved", "end": ids.len(), "lease_ms": 6000}));
    let leased = Instant::now();
    let prepared = decode.post_ok("/microserving/prep_recv", &moved).await;
    let send = json!({"begin": prepared["prefix_matched_length"], "kv_addr_info": prepared["kv_append_metadata"]});
    prefill.post_ok("/microserving/remote_send", &with(&moved, send)).await;
    decode.check_all_given_back().await;
    assert_eq!(decode.handle.report().counters.leases_expired, 1);
    assert!(leased.elapsed() < DEFAULT_LEASE, "its own lease was ignored");

    let answer = decode.post("/v1/completions", &body).await;
    assert_eq!(text(&answer), expected);
    let whole_pages = (ids.len() - 1) / 32 * 32;
    assert_eq!(answer.json()["usage"]["prompt_tokens_details"]["cached_tokens"], whole_pages);
}

#[tokio::test]
async fn without_a_reservation_the_engine_computes_the_prompt_itself() {
    let decode = Setup::default().start().await;
    let body = completion(STORY);
    let expected = text(&decode.post("/v1/completions", &body).await);
    for (begin, user) in [(0, Value::Null), (-1, Value::Null), (40, json!("unknown"))] {
        let call = with(&body, json!({"begin": begin, "user": user}));
        assert_eq!(text(&decode.post("/microserving/start_generate", &call).await), expected, "{call}");
    }
    // One that has run out, and one for which nothing will be sent: neither is waited for.
    for (user, lease_ms, begin) in [("expired", 1, json!(-1)), ("unsent", 600_000, json!(0))] {
        let call = with(&body, json!({"user": user, "end": -1, "lease_ms": lease_ms}));
        let fresh = Setup::default().start().await;
        fresh.post_ok("/microserving/prep_recv", &call).await;
        if lease_ms == 1 {
            fresh.check_all_given_back().await;
        }
        let begun = Instant::now();
        let answer = fresh.post("/microserving/start_generate", &with(&call, json!({"begin": begin}))).await;
        assert_eq!(text(&answer), expected, "{user}");
        assert!(begun.elapsed() < Duration::from_secs(60), "waited for KV that no engine sends");
        fresh.check_all_given_back().await;
    }
}
