//! The receiving half: the only writer of reserved pages. Senders connect and offer; each offered block is copied, checked
//! against its checksum and its fence, and only then counts.

use std::io::{self, BufReader, Read};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use baton_core::{PAGE_TOKENS, PageId, PromptTimes};

use crate::auth::random;
use crate::counters::FabricCounters;
use crate::error::FabricError;
use crate::expected::{Arriving, Closed, ExpectedHandOff, ExpectedHandOffs, Stall};
use crate::expected_pages::ExpectedPages;
use crate::memory::KvMemory;
use crate::options::FabricOptions;
use crate::port::{Admitted, accept_all, admit};
use crate::source::Source;
use crate::wire::{
    Hello, KvTarget, Offer, ReservationKey, ToReceiver, ToSender, Transport, VERSION, host_identity, read_message,
    write_message,
};

/// What happens to a hand-off between two calls. Reported from the receiver's own threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReceiverEvent {
    /// Its sender has offered everything. `times` are the sender's.
    Landed { reservation: ReservationKey, verified_pages: u32, times: PromptTimes },
    /// It was revoked while a block was being copied, and its pages are written no more.
    Revoked { reservation: ReservationKey, verified_tokens: u32 },
}

type OnEvent = Box<dyn Fn(ReceiverEvent) + Send + Sync>;

pub struct Receiver {
    shared: Arc<Shared>,
    address: SocketAddr,
    revoked: mpsc::Sender<RevokedInCopy>,
}

struct RevokedInCopy {
    reservation: ReservationKey,
    slot: Arc<ExpectedHandOff>,
    stall: Stall,
}

struct Shared {
    memory: Arc<dyn KvMemory>,
    slots: ExpectedHandOffs,
    counters: Arc<FabricCounters>,
    on_event: OnEvent,
    options: FabricOptions,
}

impl Receiver {
    /// Serves senders on `listener` from its own threads until the process ends.
    pub fn start(
        listener: TcpListener,
        memory: Arc<dyn KvMemory>,
        options: FabricOptions,
        counters: Arc<FabricCounters>,
        on_event: impl Fn(ReceiverEvent) + Send + Sync + 'static,
    ) -> Result<Self, FabricError> {
        let address = listener.local_addr().map_err(FabricError::Connect)?;
        let (slots, on_event) = (ExpectedHandOffs::default(), Box::new(on_event));
        let shared = Arc::new(Shared { memory, slots, counters, on_event, options });
        let serving = shared.clone();
        let serve = move |stream| {
            if let Err(error) = serve_sender(stream, &serving) {
                tracing::warn!(%error, "a KV sender's connection ended");
            }
        };
        std::thread::Builder::new()
            .name("kv-accept".to_owned())
            .spawn(move || accept_all(|| listener.accept().map(|(stream, _)| stream), std::thread::sleep, serve))
            .map_err(FabricError::Connect)?;
        let (revoked, in_copy) = channel();
        let reporting = shared.clone();
        std::thread::Builder::new()
            .name("kv-revoke".to_owned())
            .spawn(move || report_revoked(&in_copy, &reporting.on_event))
            .map_err(FabricError::Connect)?;
        Ok(Self { shared, address, revoked })
    }

    /// From now on senders that know the returned target may fill these pages (positions `[begin, end)` of a sequence).
    pub fn expect(&self, id: u64, begin: u32, end: u32, pages: Vec<PageId>) -> Result<KvTarget, FabricError> {
        let reservation = ReservationKey { id, key: u64::from_le_bytes(random().map_err(FabricError::Memory)?) };
        let layout = self.shared.memory.layout().clone();
        let expected = ExpectedPages::new(begin..end, pages, layout.layers);
        self.shared.slots.insert(reservation, expected, Instant::now());
        Ok(KvTarget {
            version: VERSION,
            address: self.address,
            reservation,
            layout,
            numerics_id: self.shared.options.numerics_id.clone(),
            page_tokens: PAGE_TOKENS as u32,
            begin,
            end,
        })
    }

    /// No write to the reservation's pages begins any more. Returns how many tokens, counted from the sequence's
    /// start, are valid; `None` while a block is being copied: [`ReceiverEvent::Revoked`] follows when that has ended. Its
    /// sender loses its connection if it sends nothing for half a second.
    pub fn revoke(&self, target: &KvTarget) -> Option<u32> {
        let reservation = target.reservation;
        match self.shared.slots.revoke(reservation) {
            Closed::Now(verified_tokens) => Some(verified_tokens),
            Closed::Copying(slot) => {
                // The other end lives as long as this one.
                let _ = self.revoked.send(RevokedInCopy { reservation, slot, stall: Stall::since(Instant::now()) });
                None
            }
        }
    }

    /// When the last block was verified, or else when it was first expected. `None` once it is revoked.
    pub fn last_arrival(&self, target: &KvTarget) -> Option<Instant> {
        self.shared.slots.last_arrival(target.reservation)
    }
}

/// Waits where the caller of `revoke` must not. Copies last milliseconds, so looking again and again is cheap.
fn report_revoked(in_copy: &mpsc::Receiver<RevokedInCopy>, on_event: &OnEvent) {
    let mut waiting: Vec<RevokedInCopy> = Vec::new();
    loop {
        let patience = if waiting.is_empty() { Duration::MAX } else { Duration::from_millis(1) };
        match in_copy.recv_timeout(patience) {
            Ok(revoked) => waiting.push(revoked),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
        waiting.retain_mut(|RevokedInCopy { reservation, slot, stall }| match slot.close() {
            Some(verified_tokens) => {
                on_event(ReceiverEvent::Revoked { reservation: *reservation, verified_tokens });
                false
            }
            None => {
                stall.cut_if_over(slot);
                true
            }
        });
    }
}

/// One sender, from its first byte to its last.
fn serve_sender(stream: TcpStream, shared: &Shared) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut answers = stream.try_clone()?;
    let greeted = admit(&stream, &shared.options.key, &shared.options.limits)?
        .and_then(|Admitted { hello, proof }| Ok((source_of(&hello, shared)?, proof)));
    let mut source = match greeted {
        Ok((source, proof)) => {
            write_message(&mut answers, &ToSender::Welcome { transport: source.transport(), proof })?;
            source
        }
        Err(reason) => {
            tracing::warn!(%reason, "refused a KV sender");
            return write_message(&mut answers, &ToSender::Refused { reason });
        }
    };
    let connection = match source.transport() {
        Transport::Shm => None,
        Transport::Tcp => Some(Arc::new(stream.try_clone()?)),
    };
    // Small: blocks are read past it.
    let mut input = BufReader::with_capacity(1 << 12, stream);
    while let Some(message) = read_message(&mut input)? {
        let answer = match message {
            ToReceiver::Alive => continue,
            ToReceiver::Offer(offer) => {
                let Taken { bytes, damaged } = take(&offer, &mut source, &mut input, connection.as_ref(), shared)?;
                ToSender::Taken { reservation: offer.reservation, bytes, damaged }
            }
            ToReceiver::Finish { reservation, times } => {
                // A sender that does not know the key ends nothing.
                let slot = shared.slots.get(reservation);
                let expected = slot.as_ref().and_then(|slot| slot.lock_for(connection.as_ref()));
                let verified_pages =
                    expected.as_ref().and_then(|expected| expected.as_ref()).map_or(0, ExpectedPages::verified_pages);
                drop(expected);
                if slot.is_some() {
                    (shared.on_event)(ReceiverEvent::Landed { reservation, verified_pages, times });
                }
                ToSender::Finished { reservation, verified_pages }
            }
        };
        write_message(&mut answers, &answer)?;
    }
    Ok(())
}

/// Shared memory where the sender's regions can be mapped, its connection otherwise.
fn source_of(hello: &Hello, shared: &Shared) -> Result<Source, String> {
    let ours = shared.memory.layout();
    if hello.shards.iter().any(|shard| shard.layout.kv != *ours) {
        return Err(format!("KV layouts differ: ours {ours:?}, the sender's {:?}", hello.shards.first()));
    }
    let mut covered = 0;
    for shard in &hello.shards {
        let heads = &shard.layout.heads;
        if heads.start != covered || heads.end <= covered {
            return Err(format!("the sender offers KV heads {heads:?} after {covered}"));
        }
        covered = heads.end;
    }
    if covered != ours.kv_heads {
        return Err(format!("the sender offers {covered} KV heads of {}", ours.kv_heads));
    }
    if hello.shm_allowed && shared.options.shm_allowed && hello.host == host_identity() {
        match Source::shm(hello, Arc::clone(&shared.memory)) {
            Ok(source) => return Ok(source),
            Err(error) => tracing::warn!(%error, "cannot map the sender's memory, falling back to tcp"),
        }
    }
    Ok(Source::tcp(hello))
}

#[derive(Default)]
struct Taken {
    /// Verified.
    bytes: u64,
    damaged: bool,
}

/// Copies what is expected, skips what is not.
fn take(
    offer: &Offer,
    source: &mut Source,
    input: &mut dyn Read,
    connection: Option<&Arc<TcpStream>>,
    shared: &Shared,
) -> io::Result<Taken> {
    let started = Instant::now();
    let layout = shared.memory.layout();
    let (page_sums, at_once) = (source.sums_per_page(), source.pages_at_once());
    if offer.layer >= layout.layers || offer.checksums.len() != offer.pages.len() * page_sums {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "an offer that does not add up"));
    }
    let expecting = shared.slots.get(offer.reservation);
    if expecting.is_none() {
        FabricCounters::add(&shared.counters.unknown_offers, 1);
    }
    let mut taken = Taken::default();
    let pieces = offer.pages.chunks(at_once).zip(offer.checksums.chunks(at_once * page_sums));
    for (piece, (pages, sums)) in pieces.enumerate() {
        let first_index = offer.first_index.saturating_add((piece * at_once) as u32);
        // Held until these pages are copied. Should their sender stop before that, it is cut off when they are wanted.
        let mut expected = expecting.as_ref().and_then(|slot| slot.lock_for(connection));
        let mut expected = expected.as_mut().and_then(|expected| expected.as_mut());
        let indexes = (0..pages.len() as u32).map(|at| first_index.saturating_add(at));
        let slots: Vec<_> = indexes.map(|index| expected.as_ref().and_then(|expected| expected.slot(index))).collect();
        let targets =
            slots.iter().map(|slot| expected.as_ref().zip(*slot).map(|(expected, slot)| expected.pages[slot]));
        let wanted: Vec<_> = pages.iter().copied().zip(targets).collect();
        if let Some(expected) = &mut expected {
            slots.iter().flatten().for_each(|&slot| expected.unmark(slot, offer.layer));
        }
        let mut arriving = Arriving { input: &mut *input, slot: expecting.as_deref() };
        // SAFETY: pages that are reserved for this hand-off, whose expected pages are locked.
        let written = unsafe { source.receive(offer.layer, &wanted, shared.memory.as_ref(), &mut arriving) }?;
        let Some(expected) = &mut expected else { continue };
        let fresh = source.fence_holds(offer.fence);
        let announced = slots.iter().zip(sums.chunks(page_sums)).filter_map(|(slot, sums)| Some(((*slot)?, sums)));
        for ((slot, announced), written) in announced.zip(written.chunks(page_sums)) {
            if written != announced {
                FabricCounters::add(&shared.counters.checksum_failures, 1);
                taken.damaged = true;
            } else if !fresh {
                FabricCounters::add(&shared.counters.stale_blocks, 1);
            } else {
                expected.mark(slot, offer.layer);
                expecting.iter().for_each(|slot| slot.note_arrival(Instant::now()));
                taken.bytes += layout.block_bytes() as u64;
                FabricCounters::add(&shared.counters.pages_received, u64::from(offer.layer + 1 == layout.layers));
            }
        }
    }
    FabricCounters::add(&shared.counters.bytes_received, taken.bytes);
    FabricCounters::add(&shared.counters.copy_us, started.elapsed().as_micros() as u64);
    Ok(taken)
}

#[cfg(test)]
#[path = "receiver_tests.rs"]
mod tests;
