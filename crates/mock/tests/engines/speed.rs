//! Time is kept: what a step costs, and no more.

use std::time::{Duration, Instant};

use baton_core::EngineEvent;
use baton_protocol::Engine;

use crate::fleet::{generate, mock, request};

pub(crate) const TRY_FOR: Duration = Duration::from_secs(120);

/// A busy machine makes tries late too, so one of many has to be in time. Each gets its number, for a prompt
/// that no engine has seen before.
pub(crate) async fn in_time(slack: Duration, late_by: impl AsyncFn(u64) -> Duration) {
    let began = Instant::now();
    let mut late = Vec::new();
    while began.elapsed() < TRY_FOR {
        late.push(late_by(late.len() as u64).await);
        if late.iter().any(|late| *late < slack) {
            return;
        }
    }
    panic!("late by {late:?}");
}

#[tokio::test]
async fn two_hundred_ms_to_the_first_token_and_twenty_between_tokens() {
    let mock = mock("prefill-ms=200,decode-ms=20");
    in_time(Duration::from_millis(60), async |attempt| {
        let started = Instant::now();
        // Two chunks of a step each: a prompt's time does not depend on how it is cut.
        let mut stream = mock.engine.start_generate(request(attempt, 900, 26), None).await.unwrap();
        let mut at = Vec::new();
        while let Some(event) = stream.next().await {
            if let EngineEvent::Token(_) = event {
                at.push(started.elapsed());
            }
        }
        // Never early.
        let first = at[0].checked_sub(Duration::from_millis(200)).unwrap();
        let last = at[25].checked_sub(Duration::from_millis(200 + 25 * 20)).unwrap();
        first.max(last)
    })
    .await;
}

#[tokio::test]
async fn pauses_between_requests_are_not_made_up_for() {
    let mock = mock("prefill-ms=60,decode-ms=5");
    for id in 0..3 {
        let started = Instant::now();
        generate(&mock, request(id, 100, 3)).await.unwrap();
        assert!(started.elapsed() >= Duration::from_millis(70), "request {id} after {:?}", started.elapsed());
        tokio::time::sleep(Duration::from_millis(40)).await;
    }
}

#[tokio::test]
async fn steps_are_shared_by_all_who_decode() {
    let mock = mock("decode-ms=10");
    in_time(Duration::from_millis(300), async |attempt| {
        let started = Instant::now();
        let all = (0..20).map(|id| generate(&mock, request(attempt * 20 + id, 20, 11)));
        let answers = futures_util::future::join_all(all).await;
        assert!(answers.iter().all(|tokens| tokens.as_ref().unwrap().len() == 11));
        started.elapsed().checked_sub(Duration::from_millis(100)).unwrap()
    })
    .await;
}

#[tokio::test]
async fn nothing_is_waited_for_when_nothing_takes_time() {
    let mock = mock("");
    in_time(Duration::from_secs(2), async |attempt| {
        let started = Instant::now();
        assert_eq!(generate(&mock, request(attempt, 1000, 2000)).await.unwrap().len(), 2000);
        started.elapsed()
    })
    .await;
}

#[tokio::test]
async fn answers_end_where_configured() {
    let mock = mock("output-tokens=7");
    let answers = generate(&mock, request(1, 10, 100)).await.unwrap();
    assert_eq!((answers.len(), answers[7].0), (8, 2), "seven tokens and the stop token");
    assert_eq!(generate(&mock, request(1, 10, 5)).await.unwrap(), answers[..5]);
    let mut endless = request(1, 10, 30);
    endless.limits.stop_tokens.clear();
    assert_eq!(generate(&mock, endless).await.unwrap().len(), 30);
}
