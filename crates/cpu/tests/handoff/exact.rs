//! The tokens are the same however the work is split, and the work really is split.

use baton_core::{EngineCounters, TokenRange};
use baton_protocol::Engine;
use futures_util::future::join_all;

use super::engines::{Node, PLAIN, Setup, alone, handed_over, read, request, sampled};

fn splits(length: usize) -> Vec<usize> {
    let mut ends = vec![length - 1, length, length / 2, length / 10, length * 9 / 10];
    ends.sort_unstable();
    ends.dedup();
    ends
}

fn since(now: EngineCounters, before: EngineCounters) -> (u64, u64, u64) {
    let prefill = now.prefill_tokens - before.prefill_tokens;
    (prefill, now.cached_tokens - before.cached_tokens, now.received_tokens - before.received_tokens)
}

async fn check_every_split(setup: Setup, lengths: &[usize]) {
    let (reference, prefill, decode) = (PLAIN.start(), setup.start(), setup.start());
    for &length in lengths {
        for end in splits(length) {
            let request = sampled(request(1, 3, length));
            let expected = alone(&reference, &request).await;
            let (p, d) = (prefill.counters(), decode.counters());
            let got = handed_over(&prefill, &decode, &request, end, None).await;
            let how = format!("{length} tokens, [0, {end}) handed over, shm {}", setup.shm);
            assert!(got == expected, "{how}: tokens differ");
            // The second choice computes what is not a whole page of the prompt.
            let received = end.min(length - 1);
            let second = length - (length - 1) / 32 * 32;
            assert_eq!(since(decode.counters(), d), ((length - received + second) as u64, 0, received as u64), "{how}");
            assert_eq!(since(prefill.counters(), p), (end as u64, 0, 0), "{how}");
        }
    }
    let (sent, received) = (prefill.counters(), decode.counters());
    assert_eq!(sent.kv_bytes_sent, received.kv_bytes_received);
    assert!(received.kv_pages_received > 0 && received.checksum_failures + received.stale_blocks == 0);
    prefill.check_all_given_back().await;
    decode.check_all_given_back().await;
}

#[tokio::test]
async fn every_split_over_shared_memory() {
    check_every_split(PLAIN, &[1, 2, 32, 33, 100, 320]).await;
}

#[tokio::test]
async fn every_split_over_tcp_in_chunks() {
    check_every_split(Setup { shm: false, step_tokens: 50, ..PLAIN }, &[1, 33, 64, 250]).await;
}

#[tokio::test]
async fn warm_caches_on_both_sides() {
    let setup = Setup { prefix_cache: true, ..PLAIN };
    let (reference, prefill, decode) = (PLAIN.start(), setup.start(), setup.start());
    // On the decode engine 64 tokens are cached, on the prefill engine 128.
    alone(&decode, &request(1, 5, 70)).await;
    alone(&prefill, &request(2, 5, 130)).await;
    for (id, begin) in [(3, None), (4, Some(0)), (5, Some(17))] {
        let request = request(id, 5, 300 + id as usize);
        let expected = alone(&reference, &request).await;
        let (p, d) = (prefill.counters(), decode.counters());
        assert!(handed_over(&prefill, &decode, &request, request.prompt.len() - 1, begin).await == expected);
        let (p, d) = (since(prefill.counters(), p), since(decode.counters(), d));
        assert_eq!(d.0, 1, "all but the last token came from the cache or the other engine");
        assert_eq!(d.1 + d.2 + 1, request.prompt.len() as u64);
        assert_eq!((p.0 + p.1, p.1 >= 128), (request.prompt.len() as u64 - 1, true));
        assert!(d.1 >= 64, "{d:?}");
    }
    prefill.check_all_given_back().await;
    decode.check_all_given_back().await;
}

#[tokio::test]
async fn the_whole_context_can_migrate_into_a_cache() {
    let setup = Setup { prefix_cache: true, ..PLAIN };
    let (reference, from, to) = (PLAIN.start(), setup.start(), setup.start());
    for (id, length) in [(1, 192), (2, 200)] {
        let request = request(id, 10 + id as u32, length);
        let reservation = to.engine.prep_recv(&request, length as u32).await.unwrap();
        from.engine.remote_send(&request, &reservation, TokenRange::up_to(length as u32)).await.unwrap();
        drop(reservation);
        let before = to.counters();
        assert!(alone(&to, &request).await == alone(&reference, &request).await);
        let cached = (length as u64 - 1) / 32 * 32;
        assert_eq!(since(to.counters(), before), (length as u64 - cached, cached, 0));
    }
    to.check_all_given_back().await;
}

/// The three calls of one request at once: decoding parks until its KV is there.
async fn overlapped(prefill: &Node, decode: &Node, request: &baton_core::GenerateRequest) -> super::engines::Generated {
    let end = request.prompt.len() as u32 - 1;
    let reservation = decode.engine.prep_recv(request, end).await.unwrap();
    let destination = (*reservation).clone();
    let sending = async {
        if let Some(range) = destination.missing() {
            prefill.engine.remote_send(request, &destination, range).await.unwrap();
        }
    };
    let stream = decode.engine.start_generate(request.clone(), Some((reservation, None))).await.unwrap();
    let ((), generated) = tokio::join!(sending, read(stream, request.outputs.len()));
    generated
}

#[tokio::test]
async fn twenty_at_once_in_both_directions() {
    let reference = PLAIN.start();
    let setup = Setup { prefix_cache: true, step_tokens: 100, pages: 200, ..PLAIN };
    let (left, right) = (setup.start(), Setup { shm: false, ..setup }.start());
    let requests: Vec<_> = (0..20).map(|id| sampled(request(id, id as u32 % 4, 20 + 13 * id as usize))).collect();
    let mut expected = Vec::new();
    for request in &requests {
        expected.push(alone(&reference, request).await);
    }
    let served = requests.iter().map(|request| {
        let (prefill, decode) = if request.id.0 % 2 == 0 { (&left, &right) } else { (&right, &left) };
        overlapped(prefill, decode, request)
    });
    let got = join_all(served).await;
    for ((got, expected), request) in got.iter().zip(&expected).zip(&requests) {
        assert!(got == expected, "request {}", request.id);
    }
    for node in [&left, &right] {
        assert_eq!(node.counters().handoffs_received, 10);
        node.check_all_given_back().await;
    }
}

#[tokio::test]
async fn most_of_a_long_prompt_has_landed_before_it_is_computed() {
    let setup = Setup { step_tokens: 128, ..PLAIN };
    let (prefill, decode) = (setup.start(), setup.start());
    handed_over(&prefill, &decode, &request(1, 1, 1000), 999, None).await;
    let sent = prefill.counters();
    assert!(sent.kv_bytes_sent_early * 2 > sent.kv_bytes_sent, "{sent:?}");
}
