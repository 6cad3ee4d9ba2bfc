//! Pages that were reserved come back, whichever side disappears.

use std::sync::Arc;

use baton_core::{Attempt, Fault, Retry, TokenRange};
use baton_engine::LocalEngine;
use baton_protocol::{Command, Engine, PrepRecv};

use super::engines::{PLAIN, Setup, eventually, request};

#[tokio::test]
async fn a_dropped_reservation_gives_its_pages_back() {
    let decode = PLAIN.start();
    let request = request(1, 1, 300);
    let reservation = decode.engine.prep_recv(&request, 299).await.unwrap();
    let load = decode.handle.report().load;
    assert_eq!((load.reservations, load.reserved_pages), (1, 10));
    decode.handle.audit().await.unwrap().unwrap();
    drop(reservation);
    decode.check_all_given_back().await;
}

#[tokio::test]
async fn a_call_that_is_dropped_before_its_answer_leaves_nothing() {
    let (prefill, decode) = (Setup { step_tokens: 16, ..PLAIN }.start(), PLAIN.start());
    let mut request = request(1, 2, 1500);
    drop(decode.engine.prep_recv(&request, 1499));
    decode.check_all_given_back().await;

    request.attempt = Attempt(1);
    let reservation = decode.engine.prep_recv(&request, 1499).await.unwrap();
    let sending = prefill.engine.remote_send(&request, &reservation, TokenRange::up_to(1499));
    eventually("it computes", || prefill.counters().prefill_tokens > 0).await;
    drop(sending);
    prefill.check_all_given_back().await;
    drop(reservation);
    decode.check_all_given_back().await;
}

#[tokio::test]
async fn reservations_end_with_their_session() {
    let decode = PLAIN.start();
    let session = LocalEngine::new(decode.handle.clone());
    let parked = session.prep_recv(&request(1, 3, 100), 99).await.unwrap();
    let stream = session.start_generate(request(1, 3, 100), Some((parked, None))).await.unwrap();
    let reservation = session.prep_recv(&request(2, 3, 200), 199).await.unwrap();
    eventually("two are there", || decode.handle.report().load.reservations == 2).await;
    drop(session);
    decode.check_all_given_back().await;
    drop((stream, reservation));
    decode.check_all_given_back().await;
}

#[tokio::test]
async fn a_lease_runs_out_without_a_message() {
    let decode = PLAIN.start();
    let (outbox, mut replies) = tokio::sync::mpsc::unbounded_channel();
    let session = decode.handle.open_session(outbox);
    let base = request(1, 4, 100);
    let call = PrepRecv {
        request: base.id,
        attempt: base.attempt,
        prompt: Arc::clone(&base.prompt),
        adapter: None,
        end: 99,
        lease_ms: Some(400),
    };
    decode.handle.send(session, Command::PrepRecv(Box::new(call))).unwrap();
    // A session also receives reports.
    while replies.recv().await.unwrap().events.is_empty() {}
    assert_eq!(decode.handle.report().load.reservations, 1);
    decode.check_all_given_back().await;
    assert_eq!(decode.counters().leases_expired, 1);
}

#[tokio::test]
async fn at_most_half_of_a_pool_is_reserved() {
    let decode = Setup { pages: 20, ..PLAIN }.start();
    let first = decode.engine.prep_recv(&request(1, 5, 257), 256).await.unwrap();
    let error = decode.engine.prep_recv(&request(2, 6, 97), 96).await.err().unwrap();
    assert!(matches!((error.fault, error.retry), (Fault::Capacity, Retry::AfterMs(_))), "{error}");
    let second = decode.engine.prep_recv(&request(2, 6, 65), 64).await.unwrap();
    // More than half would never fit: no use in waiting.
    let error = decode.engine.prep_recv(&request(3, 7, 400), 399).await.err().unwrap();
    assert_eq!((error.fault, error.retry), (Fault::Capacity, Retry::Never), "{error}");
    drop((first, second));
    decode.check_all_given_back().await;
}
