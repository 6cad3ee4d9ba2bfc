//! Offers made by hand, as a broken, stopped or restarted sender would make them.

use std::io::Write;
use std::sync::mpsc::channel;

use super::*;
use crate::checksum::checksum;
use crate::fence::{FenceMark, FenceTable};
use crate::layout::{KvLayout, PageOrder};
use crate::port::introduce;
use crate::{HostMemory, PortKey, PortLimits};

struct Rig {
    from: HostMemory,
    fences: Arc<FenceTable>,
    receiver: Receiver,
    counters: Arc<FabricCounters>,
    wire: TcpStream,
}

fn rig(shm_allowed: bool) -> Rig {
    let layout = KvLayout { order: PageOrder::PlainF32, layers: 1, kv_heads: 1, head_dim: 4 };
    let (from, to) = (HostMemory::new(layout.clone(), 2, 1).unwrap(), HostMemory::new(layout, 2, 1).unwrap());
    let (fences, counters) = (FenceTable::new().unwrap(), Arc::<FabricCounters>::default());
    let (tell, _landed) = channel();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let options = FabricOptions {
        numerics_id: "n".to_owned(),
        shm_allowed: true,
        key: PortKey::new([7; 32]),
        limits: PortLimits::default(),
    };
    let (key, limits) = (options.key.clone(), options.limits);
    let receiver = Receiver::start(listener, Arc::new(to), options, counters.clone(), move |landed| {
        tell.send(landed).unwrap_or(());
    })
    .unwrap();
    let wire = TcpStream::connect(receiver.address).unwrap();
    let hello = Hello { shards: from.addresses(), fences: fences.address(), host: host_identity(), shm_allowed };
    introduce(&wire, &key, &limits, &hello).unwrap();
    Rig { from, fences, receiver, counters, wire }
}

impl Rig {
    /// Offers page 1 for the first page of the sequence; returns the bytes that the receiver took.
    fn offer(&mut self, target: &KvTarget, fence: FenceMark, spoil_sum: u64, with_bytes: bool) -> u64 {
        let shard = &self.from.shards()[0];
        // SAFETY: a block of a live pool that nobody writes.
        let block = unsafe { std::slice::from_raw_parts(shard.block(0, PageId(1)), shard.layout.block_bytes()) };
        let offer = Offer {
            reservation: target.reservation,
            fence,
            layer: 0,
            first_index: 0,
            pages: vec![PageId(1)],
            checksums: vec![checksum(block) ^ spoil_sum],
        };
        write_message(&mut self.wire, &ToReceiver::Offer(offer)).unwrap();
        if with_bytes {
            self.wire.write_all(block).unwrap();
        }
        match read_message(&mut self.wire).unwrap() {
            Some(ToSender::Taken { bytes, .. }) => bytes,
            other => panic!("unexpected answer {other:?}"),
        }
    }
}

#[test]
fn pages_reused_by_the_sender_do_not_count() {
    let mut rig = rig(true);
    let target = rig.receiver.expect(1, 0, 32, vec![PageId(0)]).unwrap();
    let fence = rig.fences.open().unwrap();
    let mark = fence.mark();
    assert!(rig.offer(&target, mark, 0, false) > 0);
    assert_eq!(rig.receiver.shared.inboxes.verified(target.reservation), 1);
    drop(fence);
    assert_eq!(rig.offer(&target, mark, 0, false), 0, "the same bytes under a closed fence");
    assert_eq!(FabricCounters::get(&rig.counters.stale_blocks), 1);
    assert_eq!(rig.receiver.revoke(&target), 0, "and the earlier copy was overwritten, so it does not count either");
}

#[test]
fn bytes_that_differ_from_their_checksum_do_not_count() {
    for shm in [true, false] {
        let mut rig = rig(shm);
        let target = rig.receiver.expect(1, 0, 32, vec![PageId(0)]).unwrap();
        let fence = rig.fences.open().unwrap();
        assert_eq!(rig.offer(&target, fence.mark(), 1, !shm), 0);
        assert_eq!(FabricCounters::get(&rig.counters.checksum_failures), 1);
        assert!(rig.offer(&target, fence.mark(), 0, !shm) > 0, "a good copy afterwards does");
        assert_eq!(rig.receiver.revoke(&target), 32);
    }
}

#[test]
fn a_guessed_key_opens_nothing() {
    let mut rig = rig(true);
    let mut target = rig.receiver.expect(1, 0, 32, vec![PageId(0)]).unwrap();
    let fence = rig.fences.open().unwrap();
    target.reservation.key ^= 1;
    assert_eq!(rig.offer(&target, fence.mark(), 0, false), 0);
    assert_eq!(FabricCounters::get(&rig.counters.unknown_offers), 1);
}

#[test]
fn nonsense_closes_the_connection_and_nothing_else() {
    let mut rig = rig(true);
    let target = rig.receiver.expect(1, 0, 32, vec![PageId(0)]).unwrap();
    let offer = Offer {
        reservation: target.reservation,
        fence: FenceMark { slot: 0, generation: 0 },
        layer: 77,
        first_index: u32::MAX,
        pages: vec![PageId(u32::MAX)],
        checksums: vec![0],
    };
    write_message(&mut rig.wire, &ToReceiver::Offer(offer)).unwrap();
    assert!(!matches!(read_message::<ToSender>(&mut rig.wire), Ok(Some(_))));
    assert_eq!(rig.receiver.revoke(&target), 0);
}

#[test]
fn a_sender_that_stops_in_a_block_does_not_hold_the_pages() {
    let mut rig = rig(false);
    let target = rig.receiver.expect(1, 0, 32, vec![PageId(0)]).unwrap();
    let offer = Offer {
        reservation: target.reservation,
        fence: rig.fences.open().unwrap().mark(),
        layer: 0,
        first_index: 0,
        pages: vec![PageId(1)],
        checksums: vec![0],
    };
    write_message(&mut rig.wire, &ToReceiver::Offer(offer)).unwrap();
    rig.wire.write_all(&[1; 100]).unwrap();
    let slot = rig.receiver.shared.inboxes.get(target.reservation).unwrap();
    let expected_at = rig.receiver.last_arrival(&target).unwrap();
    while slot.inbox.try_lock().is_ok() {
        std::thread::yield_now();
    }
    assert_eq!(rig.receiver.last_arrival(&target), Some(expected_at), "half a block is not an arrival");
    assert_eq!(rig.receiver.revoke(&target), 0);
    assert!(!matches!(read_message::<ToSender>(&mut rig.wire), Ok(Some(_))), "its connection is closed");
}
