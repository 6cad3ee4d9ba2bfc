//! One data connection to one receiver, with a thread that offers and a thread that hears answers.

use std::collections::BTreeMap;
use std::io::{self, BufReader, IoSlice, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver as Jobs, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use baton_core::{PageId, PromptTimes};

use crate::checksum::checksum;
use crate::counters::FabricCounters;
use crate::error::FabricError;
use crate::fence::{FenceMark, FenceTable, FenceView};
use crate::inbox::lock;
use crate::options::FabricOptions;
use crate::pace::Pace;
use crate::pool::KvPool;
use crate::port::introduce;
use crate::wire::{
    Hello, Offer, ReservationKey, ToReceiver, ToSender, Transport, host_identity, read_message, write_message,
};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// Offers that may wait for this link: a prompt of a few chunks times its layers. More makes the step loop wait.
const QUEUED_JOBS: usize = 4096;

/// What the link's thread is asked to do.
pub(crate) enum Job {
    Offer { reservation: ReservationKey, fence: FenceMark, layer: u32, first_index: u32, pages: Vec<PageId> },
    Finish { reservation: ReservationKey, times: PromptTimes },
}

/// What became of a hand-off, or why there is no answer.
pub type Outcome = Result<Delivered, String>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delivered {
    /// From the target's `begin` on.
    pub verified_pages: u32,
    /// Bytes changed after they were summed: what lies in the sender's memory is not to be trusted either.
    pub damaged: bool,
}
pub(crate) type OnOutcome = Box<dyn FnOnce(Outcome) + Send>;

pub(crate) struct Pending {
    pub(crate) on_outcome: OnOutcome,
    pub(crate) last_layer_done: Arc<AtomicBool>,
    pub(crate) damaged: bool,
}

pub(crate) struct Link {
    jobs: SyncSender<Job>,
    pending: Arc<Mutex<BTreeMap<ReservationKey, Pending>>>,
    alive: Arc<AtomicBool>,
}

/// What a sender has to offer from.
pub(crate) struct Origin {
    pub(crate) pool: Arc<KvPool>,
    pub(crate) fences: Arc<FenceTable>,
    pub(crate) counters: Arc<FabricCounters>,
    pub(crate) options: FabricOptions,
    pub(crate) pace: Pace,
}

impl Origin {
    /// Blocks are taken whole, so each shard has its share of them by heads.
    fn count_by_shard(&self, bytes: u64) {
        let heads = u64::from(self.pool.layout().kv_heads);
        for shard in self.pool.offered() {
            FabricCounters::add(&shard.bytes_sent, bytes / heads * shard.layout.heads.len() as u64);
        }
    }
}

impl Link {
    /// Returns at once; the link's own thread connects, and jobs wait for it. A receiver that cannot be reached fails every
    /// hand-off on the link.
    pub(crate) fn open(address: SocketAddr, origin: &Arc<Origin>) -> Result<Arc<Self>, FabricError> {
        let (jobs, queue) = sync_channel(QUEUED_JOBS);
        let link = Arc::new(Self { jobs, pending: Arc::default(), alive: Arc::new(AtomicBool::new(true)) });
        let (alive, pending, origin) = (link.alive.clone(), link.pending.clone(), origin.clone());
        spawn("kv-offer", move || {
            let ended = connect(address, &origin).and_then(|(stream, transport)| {
                let mut answers = BufReader::new(stream.try_clone().map_err(FabricError::Connect)?);
                let (alive, pending, hearing) = (alive.clone(), pending.clone(), origin.clone());
                spawn("kv-answers", move || {
                    let ended = hear(&mut answers, &pending, &hearing);
                    fail_all(&alive, &pending, &describe("the receiver is gone", ended));
                })?;
                let mut offering = Offering { origin, transport, stream };
                offering.run(&queue).map_err(|error| FabricError::Broken(error.to_string()))
            });
            fail_all(&alive, &pending, &describe("no longer offering", ended));
        })?;
        Ok(link)
    }

    pub(crate) fn is_alive(&self) -> bool {
        self.alive.load(Ordering::Acquire)
    }

    pub(crate) fn expect_outcome(&self, reservation: ReservationKey, pending: Pending) {
        lock(&self.pending).insert(reservation, pending);
        if !self.is_alive() {
            // The threads may have ended before the insert: then nobody else would answer.
            fail_all(&self.alive, &self.pending, "the connection is closed");
        }
    }

    pub(crate) fn forget(&self, reservation: ReservationKey) {
        lock(&self.pending).remove(&reservation);
    }

    /// Never blocks: the step loop calls this between layers. A full queue fails the hand-off, and with it nothing else.
    pub(crate) fn enqueue(&self, job: Job) {
        let reservation = match &job {
            Job::Offer { reservation, .. } | Job::Finish { reservation, .. } => *reservation,
        };
        if self.jobs.try_send(job).is_err()
            && let Some(pending) = lock(&self.pending).remove(&reservation)
        {
            (pending.on_outcome)(Err("the link to the receiver is closed or far behind".to_owned()));
        }
    }
}

fn describe(what: &str, ended: Result<(), impl std::fmt::Display>) -> String {
    ended.err().map_or_else(|| what.to_owned(), |error| format!("{what}: {error}"))
}

fn connect(address: SocketAddr, origin: &Origin) -> Result<(TcpStream, Transport), FabricError> {
    let stream = TcpStream::connect_timeout(&address, CONNECT_TIMEOUT).map_err(FabricError::Connect)?;
    stream.set_nodelay(true).map_err(FabricError::Connect)?;
    let FabricOptions { shm_allowed, ref key, ref limits, .. } = origin.options;
    let (shards, fences) = (origin.pool.addresses(), origin.fences.address());
    let hello = Hello { shards, fences, host: host_identity(), shm_allowed };
    let transport = introduce(&stream, key, limits, &hello)?;
    Ok((stream, transport))
}

fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> Result<(), FabricError> {
    std::thread::Builder::new().name(name.to_owned()).spawn(run).map(drop).map_err(FabricError::Connect)
}

fn fail_all(alive: &AtomicBool, pending: &Mutex<BTreeMap<ReservationKey, Pending>>, reason: &str) {
    alive.store(false, Ordering::Release);
    for (_, waiting) in std::mem::take(&mut *lock(pending)) {
        (waiting.on_outcome)(Err(reason.to_owned()));
    }
}

fn hear(
    answers: &mut BufReader<TcpStream>,
    pending: &Mutex<BTreeMap<ReservationKey, Pending>>,
    origin: &Origin,
) -> io::Result<()> {
    let counters = &origin.counters;
    while let Some(answer) = read_message(answers)? {
        match answer {
            ToSender::Taken { reservation, bytes, damaged } => {
                FabricCounters::add(&counters.bytes_sent, bytes);
                origin.count_by_shard(bytes);
                if let Some(waiting) = lock(pending).get_mut(&reservation) {
                    waiting.damaged |= damaged;
                    let computing = !waiting.last_layer_done.load(Ordering::Acquire);
                    FabricCounters::add(&counters.bytes_sent_early, if computing { bytes } else { 0 });
                }
            }
            ToSender::Finished { reservation, verified_pages } => {
                let waiting = lock(pending).remove(&reservation);
                if let Some(waiting) = waiting {
                    (waiting.on_outcome)(Ok(Delivered { verified_pages, damaged: waiting.damaged }));
                }
            }
            ToSender::Challenge(_) | ToSender::Welcome { .. } | ToSender::Refused { .. } => {
                return Err(io::Error::new(io::ErrorKind::InvalidData, "a second greeting"));
            }
        }
    }
    Ok(())
}

struct Offering {
    origin: Arc<Origin>,
    transport: Transport,
    stream: TcpStream,
}

impl Offering {
    fn run(&mut self, queue: &Jobs<Job>) -> io::Result<()> {
        let keep_alive = self.origin.options.limits.keep_alive();
        loop {
            let job = match queue.recv_timeout(keep_alive) {
                Ok(job) => job,
                Err(RecvTimeoutError::Timeout) => {
                    write_message(&mut self.stream, &ToReceiver::Alive)?;
                    continue;
                }
                Err(RecvTimeoutError::Disconnected) => return Ok(()),
            };
            match job {
                Job::Offer { reservation, fence, layer, first_index, pages } => {
                    self.origin.pace.carry(pages.len() * self.origin.pool.block_bytes());
                    let checksums = self.sums(layer, &pages);
                    // Sums of pages that were reused meanwhile would vouch for the wrong bytes.
                    if self.origin.fences.holds(fence) {
                        let offer = Offer { reservation, fence, layer, first_index, pages, checksums };
                        self.send(offer)?;
                    }
                }
                Job::Finish { reservation, times } => {
                    write_message(&mut self.stream, &ToReceiver::Finish { reservation, times })?;
                }
            }
        }
    }

    fn sums(&self, layer: u32, pages: &[PageId]) -> Vec<u64> {
        pages.iter().flat_map(|page| self.blocks(layer, *page).map(checksum)).collect()
    }

    /// The page's block in each offered shard.
    fn blocks(&self, layer: u32, page: PageId) -> impl Iterator<Item = &[u8]> {
        self.origin.pool.offered().map(move |shard| {
            // SAFETY: a block of our own pool. Steps do not write a page that is being handed over; should it be reused
            // all the same after an abort, the fence or the checksum tells the receiver.
            unsafe { std::slice::from_raw_parts(shard.block(layer, page), shard.layout.block_bytes()) }
        })
    }

    fn send(&mut self, offer: Offer) -> io::Result<()> {
        let (layer, pages) = (offer.layer, offer.pages.clone());
        write_message(&mut self.stream, &ToReceiver::Offer(offer))?;
        if self.transport == Transport::Tcp {
            let blocks: Vec<&[u8]> = pages.iter().flat_map(|page| self.blocks(layer, *page)).collect();
            write_all_vectored(&self.stream, &blocks)?;
        }
        Ok(())
    }
}

fn write_all_vectored(mut stream: &TcpStream, blocks: &[&[u8]]) -> io::Result<()> {
    let mut slices: Vec<IoSlice<'_>> = blocks.iter().map(|block| IoSlice::new(block)).collect();
    let mut rest = &mut slices[..];
    while !rest.is_empty() {
        match stream.write_vectored(rest)? {
            0 => return Err(io::ErrorKind::WriteZero.into()),
            written => IoSlice::advance_slices(&mut rest, written),
        }
    }
    Ok(())
}
