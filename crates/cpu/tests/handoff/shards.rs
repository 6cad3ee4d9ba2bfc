//! Engines of unequal tensor parallelism: the receiver cuts and copies the sender's KV for its own shards.

use baton_core::{GenerateRequest, TokenId};
use baton_cpu::{KvDtype, WeightForm};

use super::engines::{Node, PLAIN, SMALL, STORYTELLER, Setup, alone, handed_over, request, sampled};

/// Tokens that every vocabulary here has.
fn prompt(id: u64, length: usize) -> GenerateRequest {
    let mut request = sampled(request(id, 3, length));
    request.prompt = request.prompt.iter().map(|token| TokenId(token.0 % 120)).collect();
    request
}

/// A sequence that another engine goes on with gets what one engine alone generates.
async fn check_pairs(setup: Setup, pairs: &[(usize, usize)]) {
    let reference = Setup { shm: true, ..setup }.start();
    let (id, lengths) = (1, [1, 33, 150]);
    for &(from, to) in pairs {
        let prefill = Setup { tp: from, threads: 2, ..setup }.start();
        // As large models have it: the sender's weights are plain, the receiver's compact.
        let decode = Setup { tp: to, threads: 1 + to % 3, weights: WeightForm::Compact, ..setup }.start();
        for length in lengths {
            let request = prompt(id, length);
            let expected = alone(&reference, &request).await;
            for end in [length, length / 2].into_iter().filter(|end| *end > 0) {
                let got = handed_over(&prefill, &decode, &request, end, None).await;
                assert!(got == expected, "{from} → {to} shards, {end} of {length} tokens, shm {}", setup.shm);
            }
            assert!(alone(&decode, &request).await == expected, "{to} shards alone");
        }
        check_counters(&prefill, &decode, (from, to));
        prefill.check_all_given_back().await;
        decode.check_all_given_back().await;
    }
}

/// Both models have two KV heads. A head travels once, however many shards of either side hold it.
fn check_counters(prefill: &Node, decode: &Node, (from, to): (usize, usize)) {
    let (sent, received) = (prefill.handle.report(), decode.handle.report());
    let bytes = received.counters.kv_bytes_received;
    assert!(bytes > 0 && sent.counters.kv_bytes_sent == bytes);
    assert!(received.counters.checksum_failures + received.counters.stale_blocks == 0);
    assert_eq!((sent.shards.len(), received.shards.len()), (from, to));
    assert_eq!(sent.shards.iter().map(|shard| shard.kv_bytes_sent).sum::<u64>(), bytes);
    let each = bytes * to.max(2) as u64 / 2 / to as u64;
    assert!(received.shards.iter().all(|shard| shard.kv_bytes_received == each), "{:?}", received.shards);
    assert!(received.shards.iter().all(|shard| (shard.gathered_bytes > 0) == (to > 1)));
}

#[tokio::test]
async fn the_bundled_model() {
    check_pairs(Setup { model: &STORYTELLER, ..PLAIN }, &[(1, 2), (2, 1), (1, 6)]).await;
    check_pairs(Setup { model: &STORYTELLER, shm: false, step_tokens: 50, ..PLAIN }, &[(2, 1), (1, 2), (6, 2)]).await;
}

#[tokio::test]
async fn kv_in_int8() {
    let setup = Setup { kv_dtype: KvDtype::Int8, ..PLAIN };
    check_pairs(Setup { model: &STORYTELLER, ..setup }, &[(1, 1), (2, 1), (1, 6)]).await;
    check_pairs(Setup { model: &SMALL, shm: false, step_tokens: 50, ..setup }, &[(1, 4), (4, 2)]).await;
}

#[tokio::test]
async fn more_shards_than_kv_heads() {
    let pairs = [(1, 4), (2, 4), (4, 2), (4, 1), (4, 4), (8, 4), (1, 8)];
    check_pairs(Setup { model: &SMALL, ..PLAIN }, &pairs).await;
    check_pairs(Setup { model: &SMALL, shm: false, step_tokens: 50, ..PLAIN }, &pairs).await;
}
