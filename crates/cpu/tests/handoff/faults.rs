//! Whatever breaks between two engines, the tokens stay the same.

use std::net::TcpListener;
use std::time::{Duration, Instant};

use baton_core::{Fault, Retry, TokenRange};
use baton_cpu::{KvDtype, StorageDtype};
use baton_protocol::Engine;

use super::engines::{Node, PLAIN, Setup, alone, read, request};
use super::proxy::{Damage, damaged};

/// A decode engine that is reached through a bad wire.
fn behind(damage: Damage, landing_timeout: Duration) -> Node {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let proxy = damaged(listener.local_addr().unwrap(), damage);
    Setup { shm: false, landing_timeout, ..PLAIN }.start_at(listener, Some(proxy))
}

#[tokio::test]
async fn a_flipped_bit_is_found_and_its_page_computed_again() {
    let (prefill, decode) =
        (Setup { shm: false, ..PLAIN }.start(), behind(Damage::Flip(400_000), PLAIN.landing_timeout));
    let request = request(1, 7, 300);
    let expected = alone(&prefill, &request).await;

    let reservation = decode.engine.prep_recv(&request, 299).await.unwrap();
    let sent = prefill.engine.remote_send(&request, &reservation, TokenRange::up_to(299)).await.unwrap();
    assert!(sent.verified_tokens < 299, "{sent:?}");
    let stream = decode.engine.start_generate(request, Some((reservation, Some(sent)))).await.unwrap();
    assert!(read(stream, 1).await == expected);
    let counters = decode.counters();
    assert_eq!(counters.checksum_failures, 1);
    assert_eq!(counters.prefill_tokens, 300 - u64::from(sent.verified_tokens));
    assert_eq!(counters.received_tokens, u64::from(sent.verified_tokens));
}

#[tokio::test]
async fn a_broken_connection_fails_the_sender_and_not_the_receiver() {
    let (prefill, decode) =
        (Setup { shm: false, ..PLAIN }.start(), behind(Damage::Cut(400_000), PLAIN.landing_timeout));
    let request = request(1, 8, 300);
    let expected = alone(&prefill, &request).await;

    let reservation = decode.engine.prep_recv(&request, 299).await.unwrap();
    let error = prefill.engine.remote_send(&request, &reservation, TokenRange::up_to(299)).await.unwrap_err();
    assert_eq!((error.fault, error.retry), (Fault::Engine, Retry::Elsewhere), "{error}");
    let mut stream = decode.engine.start_generate(request, Some((reservation, None))).await.unwrap();
    stream.expect_no_more();
    assert!(read(stream, 1).await == expected);
    prefill.check_all_given_back().await;
    decode.check_all_given_back().await;
}

#[tokio::test]
async fn a_stalled_sender_is_not_waited_for_forever() {
    let patience = Duration::from_millis(150);
    let (prefill, decode) = (Setup { shm: false, ..PLAIN }.start(), behind(Damage::Stall(400_000), patience));
    let request = request(1, 9, 300);
    let expected = alone(&prefill, &request).await;

    let reservation = decode.engine.prep_recv(&request, 299).await.unwrap();
    let destination = (*reservation).clone();
    let sending = prefill.engine.remote_send(&request, &destination, TokenRange::up_to(299));
    let stream = decode.engine.start_generate(request.clone(), Some((reservation, None))).await.unwrap();
    assert!(read(stream, 1).await == expected);
    assert_eq!(decode.counters().landing_timeouts, 1);
    drop(sending);
    prefill.check_all_given_back().await;
    decode.check_all_given_back().await;
}

/// Of the bundled model: six layers, K and V of two heads, 32 tokens × 64 dimensions in bf16.
const PAGE_BYTES: u64 = 6 * 2 * 2 * 32 * 64 * 2;

#[tokio::test]
async fn a_prefill_engine_that_ends_in_the_middle() {
    let (reference, decode) = (PLAIN.start(), PLAIN.start());
    let request = request(1, 11, 1500);
    let expected = alone(&reference, &request).await;

    // Eleven seconds for all of it: however slow this machine is, there is a middle to end in.
    let prefill = Setup { step_tokens: 16, line: Some(200_000), ..PLAIN }.start();
    let reservation = decode.engine.prep_recv(&request, 1499).await.unwrap();
    let destination = (*reservation).clone();
    let sending = prefill.engine.remote_send(&request, &destination, TokenRange::up_to(1499));
    let mut stream = decode.engine.start_generate(request.clone(), Some((reservation, None))).await.unwrap();
    // What has come of a second page shows that all layers of the first are there. An engine that waits counts when polled.
    let started = Instant::now();
    while decode.counters().kv_bytes_received <= PAGE_BYTES {
        assert!(started.elapsed() < Duration::from_secs(60), "no page was received");
        decode.handle.audit().await.unwrap().unwrap();
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    prefill.handle.stop();
    let error = sending.await.unwrap_err();
    assert_eq!(error.retry, Retry::Elsewhere, "{error}");
    stream.expect_no_more();
    assert!(read(stream, 1).await == expected);
    let counters = decode.counters();
    assert!(counters.received_tokens > 0 && counters.prefill_tokens > 1, "{counters:?}");
    assert_eq!(counters.received_tokens + counters.prefill_tokens, 1500);
}

#[tokio::test]
async fn engines_of_another_deployment_get_nothing() {
    let (stranger, decode) = (Setup { secret: "another", ..PLAIN }.start(), PLAIN.start());
    let request = request(1, 14, 100);
    let expected = alone(&stranger, &request).await;
    let reservation = decode.engine.prep_recv(&request, 99).await.unwrap();
    let error = stranger.engine.remote_send(&request, &reservation, TokenRange::up_to(99)).await.unwrap_err();
    assert!(error.message.contains("the receiver refused: wrong secret"), "{error}");
    drop(reservation);
    assert!(alone(&decode, &request).await == expected);
    assert_eq!(decode.counters().kv_bytes_received, 0);
    decode.check_all_given_back().await;
}

#[tokio::test]
async fn what_does_not_fit_together_is_refused_with_both_sides_named() {
    let decode = PLAIN.start();
    let request = request(1, 12, 100);
    let reservation = decode.engine.prep_recv(&request, 99).await.unwrap();
    let range = TokenRange::up_to(99);

    for other in [Setup { dtype: StorageDtype::F32, ..PLAIN }, Setup { kv_dtype: KvDtype::Int8, ..PLAIN }] {
        let other = other.start();
        let error = other.engine.remote_send(&request, &reservation, range).await.unwrap_err();
        assert_eq!((error.fault, error.retry), (Fault::Conflict, Retry::Never));
        for node in [&decode, &other] {
            assert!(error.message.contains(&node.handle.info().numerics_id), "{error}");
        }
    }

    let prefill = PLAIN.start();
    for prompt in [super::engines::request(1, 13, 100), super::engines::request(1, 12, 98)] {
        let range = TokenRange::up_to(prompt.prompt.len() as u32 - 1);
        let error = prefill.engine.remote_send(&prompt, &reservation, range).await.unwrap_err();
        assert_eq!((error.fault, error.param.as_deref()), (Fault::Conflict, Some("prompt")), "{error}");
    }
    let mut garbage = (*reservation).clone();
    garbage.target = vec![1, 2, 3].into();
    let error = prefill.engine.remote_send(&request, &garbage, range).await.unwrap_err();
    assert_eq!(error.fault, Fault::Caller, "{error}");
    prefill.check_all_given_back().await;
    drop(reservation);
    decode.check_all_given_back().await;
}
