//! Hand-offs between two pools in one process, over both transports and with unequal shards.

#![allow(unsafe_code, reason = "the tests read and spoil the bytes of their own pools")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "a failed step of a test is a failed test")]

mod slow_links;

use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver as Channel, channel};
use std::time::{Duration, Instant};

use baton_core::{PageId, PromptTimes};
use baton_fabric::{
    Chunk, Computed, Delivered, Export, FabricCounters, FabricOptions, Half, HostMemory, KvLayout, KvMemory, KvTarget,
    LayerCounter, Outcome, PageOrder, PortKey, PortLimits, Receiver, ReceiverEvent, Sender,
};

const LAYERS: u32 = 3;
const HEADS: u32 = 4;
const TIMEOUT: Duration = Duration::from_secs(60);

struct Side {
    pool: Arc<HostMemory>,
    counters: Arc<FabricCounters>,
}

impl Side {
    /// Received and sent bytes.
    fn by_shard(&self) -> Vec<(u64, u64)> {
        self.counters.by_shard(&self.pool.shard_layouts())
    }
}

fn side(shards: u32) -> Side {
    let layout = KvLayout { order: PageOrder::InterleavedBf16, layers: LAYERS, kv_heads: HEADS, head_dim: 16 };
    Side { pool: Arc::new(HostMemory::new(layout, 16, shards).unwrap()), counters: Arc::default() }
}

/// What a head of a page holds: recognisable, and different everywhere.
fn pattern(layer: u32, page: PageId, half: Half, head: u32, at: usize) -> u8 {
    (layer as usize * 131 + page.index() * 31 + (half == Half::Values) as usize * 17 + head as usize * 7 + at * 3) as u8
}

fn each_head(pool: &HostMemory, layer: u32, page: PageId, mut visit: impl FnMut(Half, u32, &mut [u8])) {
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

fn fill(pool: &HostMemory, page: PageId) {
    for layer in 0..LAYERS {
        each_head(pool, layer, page, |half, head, bytes| {
            for (at, byte) in bytes.iter_mut().enumerate() {
                *byte = pattern(layer, page, half, head, at);
            }
        });
    }
}

fn holds(pool: &HostMemory, page: PageId, source: PageId) -> bool {
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
    /// Of the sender's backend.
    layers_done: LayerCounter,
    sender: Sender,
    receiver: Receiver,
    events: Channel<ReceiverEvent>,
}

fn options(shm_allowed: bool) -> FabricOptions {
    let (key, limits) = (PortKey::new([7; 32]), PortLimits::default());
    FabricOptions { numerics_id: "n".to_owned(), shm_allowed, key, limits }
}

fn pair(from_shards: u32, to_shards: u32, shm: bool) -> Pair {
    pair_with(from_shards, to_shards, shm, LayerCounter::default())
}

fn pair_with(from_shards: u32, to_shards: u32, shm: bool, layers_done: LayerCounter) -> Pair {
    let (from, to) = (side(from_shards), side(to_shards));
    let (report, events) = channel();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let receiver = Receiver::start(listener, to.pool.clone(), options(true), to.counters.clone(), move |l| {
        report.send(l).unwrap()
    })
    .unwrap();
    let sender = Sender::new(from.pool.clone(), layers_done.clone(), options(shm), from.counters.clone()).unwrap();
    Pair { from, to, layers_done, sender, receiver, events }
}

impl Pair {
    /// Tokens that count when the target's pages are written no more.
    fn revoke(&self, target: &KvTarget) -> u32 {
        self.receiver.revoke(target).unwrap_or_else(|| match self.events.recv_timeout(TIMEOUT).unwrap() {
            ReceiverEvent::Revoked { verified_tokens, .. } => verified_tokens,
            landed @ ReceiverEvent::Landed { .. } => panic!("{landed:?}"),
        })
    }
}

/// All layers of these pages are final.
fn offer(export: &Export, first_index: u32, pages: &[PageId], last: bool) {
    export.offer(Chunk { first_index, pages: pages.to_vec(), computed: Computed::Already, last });
}

fn delivered(verified_pages: u32) -> Outcome {
    Ok(Delivered { verified_pages, damaged: false })
}

fn outcome_channel() -> (impl FnOnce(Outcome) + Send, Channel<Outcome>) {
    let (report, outcome) = channel();
    (move |o| report.send(o).unwrap(), outcome)
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
            offer(&export, 0, &theirs[..2], false);
            offer(&export, 2, &theirs[2..], true);
            export.finish(PromptTimes::default());
            let label = format!("shm {shm}, {from_shards} → {to_shards} shards");
            assert_eq!(outcome.recv_timeout(TIMEOUT).unwrap(), delivered(3), "{label}");
            let event = pair.events.recv_timeout(TIMEOUT).unwrap();
            assert!(matches!(event, ReceiverEvent::Landed { verified_pages: 3, .. }), "{event:?}");
            assert!(ours.iter().zip(theirs).all(|(ours, theirs)| holds(&pair.to.pool, *ours, theirs)), "{label}");
            assert_eq!(pair.revoke(&target), 70);
            let bytes = FabricCounters::get(&pair.to.counters.bytes_received);
            assert_eq!(bytes, 3 * pair.to.pool.layout().page_bytes() as u64);
            assert_eq!(FabricCounters::get(&pair.to.counters.pages_received), 3);
            for (shard, (received, _)) in pair.to.pool.shards().iter().zip(pair.to.by_shard()) {
                let held = 3 * LAYERS as u64 * shard.layout.block_bytes() as u64;
                assert_eq!(received, held, "{label}");
            }
            let sent = pair.from.by_shard().into_iter().map(|(_, sent)| sent);
            assert_eq!(sent.sum::<u64>(), bytes, "{label}: replicas do not travel");
        }
    }
}

#[test]
fn heads_that_cannot_be_shared_out_are_an_error() {
    let layout = side(1).pool.layout().clone();
    for shards in [0, 3, 6] {
        let message = HostMemory::new(layout.clone(), 16, shards).map(drop).unwrap_err().to_string();
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
    offer(&export, 0, &[PageId(0), PageId(1), PageId(2)], true);
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
        // The first of its layers is done.
        pair.layers_done.layer_done();
        let pages = vec![PageId(2)];
        export.offer(Chunk { first_index: 0, pages, computed: Computed::AfterLayers { before: 0 }, last: false });
        assert_eq!(pair.revoke(&target), 0);
        fill(&pair.to.pool, PageId(6));
        (1..LAYERS).for_each(|_| pair.layers_done.layer_done());
        export.finish(PromptTimes::default());
        assert_eq!(outcome.recv_timeout(TIMEOUT).unwrap(), delivered(0));
        assert!(holds(&pair.to.pool, PageId(6), PageId(6)), "the page belongs to another sequence by now");
        assert!(FabricCounters::get(&pair.to.counters.unknown_offers) > 0);
    }
}

#[test]
fn unequal_engines_are_refused() {
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
    offer(&export, 0, &[PageId(0)], true);
    export.finish(PromptTimes::default());
    assert!(outcome.recv_timeout(TIMEOUT).unwrap().is_err());
}

/// Layers are sent as they are done, and those of the next step only when it has done them.
#[test]
fn a_layer_leaves_when_it_is_done_and_not_before() {
    let pair = pair(1, 1, true);
    layers_leave_when_done(&pair, || pair.layers_done.layer_done());
}

#[test]
fn a_device_may_count_its_layers_itself() {
    let flag = Arc::new(AtomicU64::new(0));
    let counter = LayerCounter::of_device({
        let flag = Arc::clone(&flag);
        move || flag.load(Ordering::Acquire)
    });
    layers_leave_when_done(&pair_with(1, 1, true, counter), || {
        flag.fetch_add(1, Ordering::Release);
    });
}

fn layers_leave_when_done(pair: &Pair, layer_done: impl Fn()) {
    let (theirs, ours) = ([PageId(3), PageId(9)], [PageId(1), PageId(2)]);
    theirs.iter().for_each(|page| fill(&pair.from.pool, *page));
    let target = pair.receiver.expect(1, 0, 64, ours.to_vec()).unwrap();
    let (on_outcome, outcome) = outcome_channel();
    let export = pair.sender.begin(&target, on_outcome).unwrap();
    for (step, page) in (0_u32..).zip(theirs) {
        let computed = Computed::AfterLayers { before: (step * LAYERS).into() };
        export.offer(Chunk { first_index: step, pages: vec![page], computed, last: step == 1 });
    }
    export.finish(PromptTimes::default());
    let block = pair.from.pool.layout().page_bytes() as u64 / u64::from(LAYERS);
    for done in 1..=2 * u64::from(LAYERS) {
        layer_done();
        let started = Instant::now();
        while FabricCounters::get(&pair.from.counters.bytes_sent) < done * block {
            assert!(started.elapsed() < TIMEOUT, "layer {done} does not arrive");
            std::thread::sleep(Duration::from_millis(1));
        }
        // More than a link waits between two looks at the counter.
        std::thread::sleep(Duration::from_millis(3));
        assert_eq!(FabricCounters::get(&pair.from.counters.bytes_sent), done * block);
    }
    assert_eq!(outcome.recv_timeout(TIMEOUT).unwrap(), delivered(2));
    let early = FabricCounters::get(&pair.from.counters.bytes_sent_early);
    assert_eq!(early, (2 * u64::from(LAYERS) - 1) * block, "all but the last");
}
