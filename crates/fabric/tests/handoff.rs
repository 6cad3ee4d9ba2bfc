//! Hand-offs between two pools in one process, over both transports and with unequal shards.

#![allow(unsafe_code, reason = "the tests read and spoil the bytes of their own pools")]
#![allow(clippy::unwrap_used, reason = "a failed step of a test is a failed test")]

use std::net::TcpListener;
use std::sync::Arc;
use std::sync::mpsc::{Receiver as Channel, channel};
use std::time::Duration;

use baton_core::{PageId, PromptTimes};
use baton_fabric::{
    Delivered, FabricCounters, FabricOptions, Half, KvLayout, KvPool, Landed, Outcome, PageOrder, PortKey, PortLimits,
    Receiver, Sender,
};

const LAYERS: u32 = 3;
const HEADS: u32 = 4;
const TIMEOUT: Duration = Duration::from_secs(60);

struct Side {
    pool: Arc<KvPool>,
    counters: Arc<FabricCounters>,
}

fn side(shards: u32) -> Side {
    let layout = KvLayout { order: PageOrder::PairsBf16, layers: LAYERS, kv_heads: HEADS, head_dim: 16 };
    Side { pool: Arc::new(KvPool::new(layout, 16, shards).unwrap()), counters: Arc::default() }
}

/// What a head of a page holds: recognisable, and different everywhere.
fn pattern(layer: u32, page: PageId, half: Half, head: u32, at: usize) -> u8 {
    (layer as usize * 131 + page.index() * 31 + (half == Half::Values) as usize * 17 + head as usize * 7 + at * 3) as u8
}

fn each_head(pool: &KvPool, layer: u32, page: PageId, mut visit: impl FnMut(Half, u32, &mut [u8])) {
    let bytes = pool.layout().head_bytes();
    for shard in pool.shards() {
        for half in [Half::Keys, Half::Values] {
            for head in shard.layout.heads.clone() {
                let at = shard.layout.head_in_block(half, head);
                // SAFETY: one head inside a block of a live pool that this test owns.
                visit(half, head, unsafe { std::slice::from_raw_parts_mut(shard.block(layer, page).add(at), bytes) });
            }
        }
    }
}

fn fill(pool: &KvPool, page: PageId) {
    for layer in 0..LAYERS {
        each_head(pool, layer, page, |half, head, bytes| {
            for (at, byte) in bytes.iter_mut().enumerate() {
                *byte = pattern(layer, page, half, head, at);
            }
        });
    }
}

fn holds(pool: &KvPool, page: PageId, source: PageId) -> bool {
    let mut good = true;
    for layer in 0..LAYERS {
        each_head(pool, layer, page, |half, head, bytes| {
            good &= bytes.iter().enumerate().all(|(at, byte)| *byte == pattern(layer, source, half, head, at));
        });
    }
    good
}

struct Pair {
    from: Side,
    to: Side,
    sender: Sender,
    receiver: Receiver,
    landed: Channel<Landed>,
}

fn options(shm_allowed: bool) -> FabricOptions {
    let (key, limits) = (PortKey::new([7; 32]), PortLimits::default());
    FabricOptions { numerics_id: "n".to_owned(), shm_allowed, key, limits }
}

fn pair(from_shards: u32, to_shards: u32, shm: bool) -> Pair {
    let (from, to) = (side(from_shards), side(to_shards));
    let (tell, landed) = channel();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let receiver =
        Receiver::start(listener, to.pool.clone(), options(true), to.counters.clone(), move |l| tell.send(l).unwrap())
            .unwrap();
    let sender = Sender::new(from.pool.clone(), options(shm), from.counters.clone()).unwrap();
    Pair { from, to, sender, receiver, landed }
}

fn delivered(verified_pages: u32) -> Outcome {
    Ok(Delivered { verified_pages, damaged: false })
}

fn outcome_channel() -> (impl FnOnce(Outcome) + Send, Channel<Outcome>) {
    let (tell, outcome) = channel();
    (move |o| tell.send(o).unwrap(), outcome)
}

#[test]
fn every_transport_and_sharding_delivers() {
    for shm in [true, false] {
        // Four heads: eight and twelve shards hold each of them two and three times.
        for (from_shards, to_shards) in
            [(1, 1), (1, 2), (2, 1), (2, 4), (4, 2), (4, 4), (1, 8), (2, 8), (8, 1), (8, 2), (8, 8), (8, 12), (12, 4)]
        {
            let pair = pair(from_shards, to_shards, shm);
            let (theirs, ours) = ([PageId(3), PageId(9), PageId(1)], [PageId(15), PageId(0), PageId(7)]);
            theirs.iter().for_each(|page| fill(&pair.from.pool, *page));
            let target = pair.receiver.expect(5, 0, 70, ours.to_vec()).unwrap();
            let (on_outcome, outcome) = outcome_channel();
            let export = pair.sender.begin(&target, on_outcome).unwrap();
            for (first, chunk) in [(0, &theirs[..2]), (2, &theirs[2..])] {
                for layer in 0..LAYERS {
                    export.layer_done(layer, first, chunk, first == 2);
                }
            }
            export.finish(PromptTimes::default());
            let label = format!("shm {shm}, {from_shards} → {to_shards} shards");
            assert_eq!(outcome.recv_timeout(TIMEOUT).unwrap(), delivered(3), "{label}");
            assert_eq!(pair.landed.recv_timeout(TIMEOUT).unwrap().verified_pages, 3);
            assert!(ours.iter().zip(theirs).all(|(ours, theirs)| holds(&pair.to.pool, *ours, theirs)), "{label}");
            assert_eq!(pair.receiver.revoke(&target), 70);
            let bytes = FabricCounters::get(&pair.to.counters.bytes_received);
            assert_eq!(bytes, 3 * pair.to.pool.layout().page_bytes() as u64);
            assert_eq!(FabricCounters::get(&pair.to.counters.pages_received), 3);
            for shard in pair.to.pool.shards() {
                let held = 3 * LAYERS as u64 * shard.layout.block_bytes() as u64;
                assert_eq!(FabricCounters::get(&shard.bytes_received), held, "{label}");
            }
            let sent = pair.from.pool.shards().iter().map(|shard| FabricCounters::get(&shard.bytes_sent));
            assert_eq!(sent.sum::<u64>(), bytes, "{label}: replicas do not travel");
        }
    }
}

#[test]
fn heads_that_cannot_be_shared_out_are_an_error() {
    let layout = side(1).pool.layout().clone();
    for shards in [0, 3, 6] {
        let message = KvPool::new(layout.clone(), 16, shards).map(drop).unwrap_err().to_string();
        assert!(message.contains(&format!("4 KV heads and {shards} shards")), "{message}");
    }
}

#[test]
fn pages_the_receiver_has_do_not_travel_and_are_not_touched() {
    let pair = pair(1, 1, true);
    for page in 0..3 {
        fill(&pair.from.pool, PageId(page));
    }
    fill(&pair.to.pool, PageId(4));
    let target = pair.receiver.expect(1, 64, 96, vec![PageId(5)]).unwrap();
    let (on_outcome, outcome) = outcome_channel();
    let export = pair.sender.begin(&target, on_outcome).unwrap();
    for layer in 0..LAYERS {
        export.layer_done(layer, 0, &[PageId(0), PageId(1), PageId(2)], true);
    }
    export.finish(PromptTimes::default());
    assert_eq!(outcome.recv_timeout(TIMEOUT).unwrap(), delivered(1));
    assert!(holds(&pair.to.pool, PageId(5), PageId(2)) && holds(&pair.to.pool, PageId(4), PageId(4)));
}

#[test]
fn nothing_is_written_after_revoke() {
    for shm in [true, false] {
        let pair = pair(1, 1, shm);
        fill(&pair.from.pool, PageId(2));
        let target = pair.receiver.expect(1, 0, 32, vec![PageId(6)]).unwrap();
        let (on_outcome, outcome) = outcome_channel();
        let export = pair.sender.begin(&target, on_outcome).unwrap();
        export.layer_done(0, 0, &[PageId(2)], false);
        assert_eq!(pair.receiver.revoke(&target), 0);
        fill(&pair.to.pool, PageId(6));
        for layer in 0..LAYERS {
            export.layer_done(layer, 0, &[PageId(2)], true);
        }
        export.finish(PromptTimes::default());
        assert_eq!(outcome.recv_timeout(TIMEOUT).unwrap(), delivered(0));
        assert!(holds(&pair.to.pool, PageId(6), PageId(6)), "the page belongs to someone else by now");
        assert!(FabricCounters::get(&pair.to.counters.unknown_offers) > 0);
    }
}

#[test]
fn unequal_engines_are_told_so() {
    let pair = pair(1, 1, true);
    let target = pair.receiver.expect(1, 0, 32, vec![PageId(0)]).unwrap();
    let mut other = target.clone();
    other.numerics_id = "other".into();
    let message = pair.sender.begin(&other, |_| ()).map(drop).unwrap_err().to_string();
    assert!(message.contains("\"n\"") && message.contains("\"other\""), "{message}");
    let mut other = target;
    other.layout.head_dim = 8;
    assert!(pair.sender.begin(&other, |_| ()).is_err());
}

#[test]
fn a_dead_receiver_fails_the_export() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let pair = pair(1, 1, true);
    let mut target = pair.receiver.expect(1, 0, 32, vec![PageId(0)]).unwrap();
    target.address = listener.local_addr().unwrap();
    drop(listener);
    let (on_outcome, outcome) = outcome_channel();
    let export = pair.sender.begin(&target, on_outcome).unwrap();
    export.layer_done(0, 0, &[PageId(0)], true);
    export.finish(PromptTimes::default());
    assert!(outcome.recv_timeout(TIMEOUT).unwrap().is_err());
}
