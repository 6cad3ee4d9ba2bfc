//! Links that are slow, busy or idle: none of these fails a hand-off.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::mpsc::{Receiver as Channel, channel};
use std::time::Duration;

use baton_core::{PageId, PromptTimes};
use baton_fabric::{
    Chunk, Computed, FabricOptions, HostMemory, KvLayout, LayerCounter, PageOrder, PortLimits, Receiver, ReceiverEvent,
    Sender,
};

use super::{TIMEOUT, delivered, offer, options, outcome_channel};

/// Accepts for `receiver`, and carries nothing until `gate` opens; then `bytes_per_ms` bytes per millisecond.
fn throttled(receiver: SocketAddr, gate: Channel<()>, bytes_per_ms: usize) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        let (mut sender, mut receiver) = (listener.accept().unwrap().0, TcpStream::connect(receiver).unwrap());
        let (mut answers, mut back) = (receiver.try_clone().unwrap(), sender.try_clone().unwrap());
        std::thread::spawn(move || std::io::copy(&mut answers, &mut back));
        gate.recv().unwrap();
        let mut buffer = vec![0; bytes_per_ms];
        while let Ok(count @ 1..) = sender.read(&mut buffer) {
            if receiver.write_all(&buffer[..count]).is_err() {
                return;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    });
    address
}

fn memory(layers: u32, pages: u32) -> Arc<HostMemory> {
    let layout = KvLayout { order: PageOrder::PlainF32, layers, kv_heads: 1, head_dim: 1 };
    Arc::new(HostMemory::new(layout, pages, 1).unwrap())
}

/// More pieces than any queue had room for: they are offered while nothing leaves, and all arrive in the end.
#[test]
fn a_slow_receiver_is_only_late() {
    const MANY_LAYERS: u32 = 80;
    const CHUNKS: u32 = 200;
    let memory = || memory(MANY_LAYERS, CHUNKS);
    let (report, landed) = channel();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let receiver =
        Receiver::start(listener, memory(), options(true), Arc::default(), move |l| report.send(l).unwrap()).unwrap();
    let layers_done = LayerCounter::default();
    let sender = Sender::new(memory(), layers_done.clone(), options(false), Arc::default()).unwrap();
    let pages: Vec<_> = (0..CHUNKS).map(PageId).collect();
    let mut target = receiver.expect(1, 0, CHUNKS * 32, pages.clone()).unwrap();
    let (open, gate) = channel();
    target.address = throttled(target.address, gate, 4096);

    let (on_outcome, outcome) = outcome_channel();
    let export = sender.begin(&target, on_outcome).unwrap();
    for (chunk, page) in (0..).zip(&pages) {
        let computed = Computed::AfterLayers { before: (chunk * MANY_LAYERS).into() };
        export.offer(Chunk { first_index: chunk, pages: vec![*page], computed, last: chunk + 1 == CHUNKS });
        (0..MANY_LAYERS).for_each(|_| layers_done.layer_done());
    }
    export.finish(PromptTimes::default());
    assert!(landed.try_recv().is_err() && outcome.try_recv().is_err(), "nothing has left yet");
    open.send(()).unwrap();
    assert_eq!(outcome.recv_timeout(TIMEOUT).unwrap(), delivered(CHUNKS));
    let event = landed.recv_timeout(TIMEOUT).unwrap();
    assert!(matches!(event, ReceiverEvent::Landed { verified_pages: CHUNKS, .. }), "{event:?}");
}

/// A link stays open while it has nothing to send, and while its line is busy: the proxy carries one connection and no other.
#[test]
fn an_idle_or_busy_sender_shows_that_it_lives() {
    const SILENCE: Duration = Duration::from_millis(1500);
    const LONGER: Duration = Duration::from_millis(3500);
    let limits = PortLimits { silence: SILENCE, ..PortLimits::default() };
    let options = FabricOptions { limits, ..options(false) };
    let (from, to) = (memory(1, 1), memory(1, 1));
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let receiver = Receiver::start(listener, to, options.clone(), Arc::default(), |_| ()).unwrap();
    let sender = Sender::new(from.clone(), LayerCounter::default(), options, Arc::default()).unwrap();
    let (open, gate) = channel();
    open.send(()).unwrap();
    let mut proxy = None;
    let mut gate = Some(gate);
    for (pause, line) in [(Duration::ZERO, Duration::ZERO), (LONGER, Duration::ZERO), (Duration::ZERO, LONGER)] {
        std::thread::sleep(pause);
        if !line.is_zero() {
            sender.limit((from.layout().page_bytes() as f64 / line.as_secs_f64()) as u64);
        }
        let mut target = receiver.expect(1, 0, 32, vec![PageId(0)]).unwrap();
        target.address = *proxy.get_or_insert_with(|| throttled(target.address, gate.take().unwrap(), 1 << 16));
        let (on_outcome, outcome) = outcome_channel();
        let export = sender.begin(&target, on_outcome).unwrap();
        offer(&export, 0, &[PageId(0)], true);
        export.finish(PromptTimes::default());
        assert_eq!(outcome.recv_timeout(TIMEOUT).unwrap(), delivered(1), "after {pause:?}, taking {line:?}");
    }
}
