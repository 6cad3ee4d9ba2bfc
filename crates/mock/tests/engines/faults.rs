//! Faults that a mock is configured with.

use std::time::{Duration, Instant};

use baton_core::{Fault, Retry, TokenRange};
use baton_engine::EngineError;
use baton_protocol::Engine;

use crate::fleet::{generate, mock, request};
use crate::speed::in_time;

#[tokio::test]
async fn some_requests_fail_and_the_others_do_not_notice() {
    let (mock, healthy) = (mock("error-rate=0.3,error-after-tokens=4,seed=3"), mock(""));
    let all = (0..60).map(|id| generate(&mock, request(id, 40, 10)));
    let mut failed = 0;
    for (id, answer) in futures_util::future::join_all(all).await.into_iter().enumerate() {
        let whole = generate(&healthy, request(id as u64, 40, 10)).await.unwrap();
        match answer {
            Ok(tokens) => assert_eq!(tokens, whole),
            Err((tokens, error)) => {
                assert_eq!((error.fault, error.retry), (Fault::Engine, Retry::Elsewhere));
                assert_eq!(tokens, whole[..4]);
                failed += 1;
            }
        }
    }
    assert!((6..30).contains(&failed), "{failed} of 60");
    mock.handle.audit().await.unwrap().unwrap();
    let load = mock.handle.report().load;
    assert_eq!((load.running, load.waiting), (0, 0));
}

#[tokio::test]
async fn hand_offs_fail_too() {
    let (prefill, decode) = (mock("error-rate=1"), mock(""));
    let request = request(1, 100, 5);
    let reservation = decode.engine.prep_recv(&request, 99).await.unwrap();
    let range = TokenRange::new(0, 99).unwrap();
    let error = prefill.engine.remote_send(&request, &reservation, range).await.err().unwrap();
    assert_eq!((error.fault, error.retry), (Fault::Engine, Retry::Elsewhere));
    drop(reservation);
    prefill.handle.audit().await.unwrap().unwrap();
    assert_eq!(prefill.handle.report().load.exports, 0);
}

#[tokio::test]
async fn stalls_delay_and_change_nothing_else() {
    let (slow, fast) = (mock("stall-ms=30,stall-every-steps=4"), mock(""));
    let undisturbed = generate(&fast, request(1, 10, 20)).await.unwrap();
    in_time(Duration::from_millis(150), async |_| {
        let started = Instant::now();
        assert_eq!(generate(&slow, request(1, 10, 20)).await.unwrap(), undisturbed);
        started.elapsed().checked_sub(Duration::from_millis(5 * 30)).expect("not early")
    })
    .await;
}

#[tokio::test]
async fn a_crash_ends_the_engine_and_its_streams_can_go_on_elsewhere() {
    let (fragile, other) = (mock("crash-after-tokens=6"), mock(""));
    let (tokens, error) = generate(&fragile, request(1, 50, 20)).await.unwrap_err();
    assert_eq!((tokens.len(), error.retry), (6, Retry::Elsewhere));
    assert!(matches!(fragile.handle.ended().await, Err(EngineError::Backend(_))));
    let mut rest = request(1, 50, 20);
    rest.outputs[0] = tokens.clone();
    let whole = generate(&other, request(1, 50, 20)).await.unwrap();
    assert_eq!([tokens, generate(&other, rest).await.unwrap()].concat(), whole);
}
