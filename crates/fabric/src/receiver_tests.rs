//! Offers made by hand, as a broken, stopped or restarted sender would make them.

use std::io::Write;
use std::time::Duration;

use super::*;
use crate::checksum::checksum;
use crate::fence::{FenceMark, FenceTable};
use crate::layout::{KvLayout, PageOrder};
use crate::port::introduce;
use crate::{HostMemory, PortKey, PortLimits};

const TIMEOUT: Duration = Duration::from_secs(60);

struct Rig {
    from: HostMemory,
    fences: Arc<FenceTable>,
    receiver: Receiver,
    counters: Arc<FabricCounters>,
    events: mpsc::Receiver<ReceiverEvent>,
    hello: Hello,
    wire: TcpStream,
}

fn rig(shm_allowed: bool) -> Rig {
    let layout = KvLayout { order: PageOrder::PlainF32, layers: 1, kv_heads: 1, head_dim: 4 };
    let (from, to) = (HostMemory::new(layout.clone(), 2, 1).unwrap(), HostMemory::new(layout, 2, 1).unwrap());
    let (fences, counters) = (FenceTable::new().unwrap(), Arc::<FabricCounters>::default());
    let (report, events) = channel();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let options = FabricOptions {
        numerics_id: "n".to_owned(),
        shm_allowed: true,
        key: PortKey::new([7; 32]),
        limits: PortLimits::default(),
    };
    let receiver = Receiver::start(listener, Arc::new(to), options, counters.clone(), move |event| {
        report.send(event).unwrap_or(());
    })
    .unwrap();
    let hello = Hello { shards: from.addresses(), fences: fences.address(), host: host_identity(), shm_allowed };
    let wire = connect(&receiver, &hello);
    Rig { from, fences, receiver, counters, events, hello, wire }
}

fn connect(receiver: &Receiver, hello: &Hello) -> TcpStream {
    let wire = TcpStream::connect(receiver.address).unwrap();
    let options = &receiver.shared.options;
    introduce(&wire, &options.key, &options.limits, hello).unwrap();
    wire
}

impl Rig {
    /// Page 1 of the sender.
    fn block(&self) -> Vec<u8> {
        let shard = &self.from.shards()[0];
        // SAFETY: a block of a live pool that nothing writes.
        unsafe { std::slice::from_raw_parts(shard.block(0, PageId(1)), shard.layout.block_bytes()) }.to_vec()
    }

    /// Offers page 1 for the first page of the sequence, with the first `sent` of its bytes.
    fn begin_offer(&mut self, target: &KvTarget, fence: FenceMark, spoil_sum: u64, sent: usize) {
        let block = self.block();
        let offer = Offer {
            reservation: target.reservation,
            fence,
            layer: 0,
            first_index: 0,
            pages: vec![PageId(1)],
            checksums: vec![checksum(&block) ^ spoil_sum],
        };
        write_message(&mut self.wire, &ToReceiver::Offer(offer)).unwrap();
        self.wire.write_all(&block[..sent]).unwrap();
    }

    /// Sends half of an offered block and no more, as a process that is suspended then.
    fn stop_in_a_block(&mut self, target: &KvTarget, fence: FenceMark) -> Arc<ExpectedHandOff> {
        let slot = self.receiver.shared.slots.get(target.reservation).unwrap();
        let (half, before) = (self.block().len() / 2, slot.received_bytes());
        self.begin_offer(target, fence, 0, half);
        while slot.received_bytes() < before + half as u64 {
            std::thread::yield_now();
        }
        slot
    }

    /// As another sender. Returns the connection until now.
    fn connect_again(&mut self) -> TcpStream {
        std::mem::replace(&mut self.wire, connect(&self.receiver, &self.hello))
    }

    /// Returns the bytes that the receiver took.
    fn offer(&mut self, target: &KvTarget, fence: FenceMark, spoil_sum: u64, with_bytes: bool) -> u64 {
        self.begin_offer(target, fence, spoil_sum, if with_bytes { self.block().len() } else { 0 });
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
    drop(fence);
    assert_eq!(rig.offer(&target, mark, 0, false), 0, "the same bytes under a closed fence");
    assert_eq!(FabricCounters::get(&rig.counters.stale_blocks), 1);
    assert_eq!(
        rig.receiver.revoke(&target),
        Some(0),
        "and the earlier copy was overwritten, so it does not count either"
    );
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
        assert_eq!(rig.receiver.revoke(&target), Some(32));
    }
}

#[test]
fn nobody_waits_for_a_sender_that_has_stopped_in_a_block() {
    let mut rig = rig(false);
    let target = rig.receiver.expect(1, 0, 32, vec![PageId(0)]).unwrap();
    let fence = rig.fences.open().unwrap();
    let expected_at = rig.receiver.last_arrival(&target).unwrap();
    let slot = rig.stop_in_a_block(&target, fence.mark());
    assert_eq!(rig.receiver.last_arrival(&target), Some(expected_at), "half a block is not an arrival");
    let revoked = Instant::now();
    assert_eq!(rig.receiver.revoke(&target), None, "a block is being copied");
    assert!(revoked.elapsed() < Duration::from_millis(25), "and that takes no waiting");
    let event = rig.events.recv_timeout(TIMEOUT).unwrap();
    assert_eq!(event, ReceiverEvent::Revoked { reservation: target.reservation, verified_tokens: 0 });
    assert!(slot.pages.try_lock().is_ok(), "no writer is left");
    assert!(!matches!(read_message::<ToSender>(&mut rig.wire), Ok(Some(_))), "the connection is cut");
}

#[test]
fn another_sender_takes_over_from_one_that_has_stopped_in_a_block() {
    let mut rig = rig(false);
    let target = rig.receiver.expect(1, 0, 32, vec![PageId(0)]).unwrap();
    let fence = rig.fences.open().unwrap();
    rig.stop_in_a_block(&target, fence.mark());
    let mut stopped = rig.connect_again();
    assert!(rig.offer(&target, fence.mark(), 0, true) > 0, "of the second sender");
    assert!(!matches!(read_message::<ToSender>(&mut stopped), Ok(Some(_))), "the first has lost its connection");
    assert_eq!(rig.receiver.revoke(&target), Some(32));
}

#[test]
fn a_block_whose_overwriting_breaks_off_does_not_count() {
    let mut rig = rig(false);
    let target = rig.receiver.expect(1, 0, 32, vec![PageId(0)]).unwrap();
    let fence = rig.fences.open().unwrap();
    assert!(rig.offer(&target, fence.mark(), 0, true) > 0);
    let slot = rig.stop_in_a_block(&target, fence.mark());
    drop(rig.connect_again());
    while slot.pages.try_lock().is_err() {
        std::thread::yield_now();
    }
    assert_eq!(rig.receiver.revoke(&target), Some(0));
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
    assert_eq!(rig.receiver.revoke(&target), Some(0));
}
