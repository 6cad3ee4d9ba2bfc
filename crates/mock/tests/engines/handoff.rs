//! The KV of a mock is real: it travels, and it is looked at.

use std::time::{Duration, Instant};

use baton_protocol::Engine;

use crate::fleet::{generate, hand_over, mock, mock_with, read, request};
use crate::speed::{TRY_FOR, in_time};

#[tokio::test]
async fn an_engine_that_continues_a_stream_generates_the_same() {
    let (one, other) = (mock(""), mock("prefill-us-per-token=1,seed=9"));
    let whole = generate(&one, request(1, 100, 40)).await.unwrap();
    assert_eq!(whole.len(), 40);
    for accepted in [1, 7, 39] {
        let mut rest = request(1, 100, 40);
        rest.outputs[0] = whole[..accepted].to_vec();
        assert_eq!(generate(&other, rest).await.unwrap(), whole[accepted..], "after {accepted}");
    }
    assert_ne!(generate(&other, request(2, 100, 40)).await.unwrap(), whole);
}

#[tokio::test]
async fn a_handed_over_prompt_gives_the_same_tokens_and_its_kv_has_travelled() {
    let (prefill, decode, alone) = (mock(""), mock(""), mock(""));
    for (id, prompt_tokens) in [(1, 2), (2, 33), (3, 700), (4, 1500)] {
        let whole = generate(&alone, request(id, prompt_tokens, 20)).await.unwrap();
        assert_eq!(hand_over(&prefill, &decode, request(id, prompt_tokens, 20)).await, whole, "{prompt_tokens} tokens");
    }
    let counters = decode.handle.report().counters;
    assert_eq!(counters.prefill_tokens, 4, "only last tokens are computed");
    assert!(counters.kv_bytes_received >= 64 * 2100, "{counters:?}");
    decode.handle.audit().await.unwrap().unwrap();
}

#[tokio::test]
async fn shards_may_differ() {
    for (prefill_tp, decode_tp) in [(1, 2), (2, 1), (2, 4)] {
        let (prefill, decode) = (mock_with("", 400, prefill_tp), mock_with("", 400, decode_tp));
        let whole = generate(&mock(""), request(1, 300, 10)).await.unwrap();
        assert_eq!(hand_over(&prefill, &decode, request(1, 300, 10)).await, whole, "{prefill_tp} to {decode_tp}");
    }
}

#[tokio::test]
async fn pages_that_run_out_change_no_token() {
    let (small, large) = (mock_with("prefill-ms=10,decode-ms=1", 24, 1), mock(""));
    let requests = || (0..8).map(|id| request(id, 60, 120));
    let mut streams = Vec::new();
    for request in requests() {
        streams.push(small.engine.start_generate(request, None).await.unwrap());
    }
    for (stream, request) in streams.into_iter().zip(requests()) {
        assert_eq!(read(stream).await.unwrap(), generate(&large, request).await.unwrap());
    }
    assert!(small.handle.report().counters.preemptions > 0);
}

#[tokio::test]
async fn a_hand_off_takes_as_long_as_its_tokens_need_on_the_line() {
    let (prefill, decode) = (mock("transfer-us-per-token=200"), mock(""));
    in_time(Duration::from_millis(200), async |attempt| {
        let started = Instant::now();
        hand_over(&prefill, &decode, request(attempt, 1001, 1)).await;
        started.elapsed().checked_sub(Duration::from_millis(195)).expect("not early")
    })
    .await;
}

#[tokio::test]
async fn layers_travel_while_later_ones_are_computed() {
    // A busy machine may send late, in one of many tries it does not.
    let (began, mut early) = (Instant::now(), Vec::new());
    while !early.iter().any(|share| *share >= 0.8) {
        assert!(began.elapsed() < TRY_FOR, "sent while computing: {early:?}");
        let (prefill, decode) = (mock("prefill-ms=200,layers=10"), mock("layers=10"));
        hand_over(&prefill, &decode, request(1, 400, 1)).await;
        let counters = prefill.handle.report().counters;
        early.push(counters.kv_bytes_sent_early as f64 / counters.kv_bytes_sent as f64);
    }
}
