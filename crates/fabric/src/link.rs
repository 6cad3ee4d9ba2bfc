//! One data connection to one receiver, with a thread that offers and a thread that hears answers. Neither the step loop nor a
//! thread that computes ever waits for them: a receiver that is slow is late, and that is all.

use std::io::{self, BufReader};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use baton_core::PromptTimes;

use crate::counters::FabricCounters;
use crate::cursor::{Chunk, Cursor, Cursors, Next, Piece};
use crate::error::FabricError;
use crate::fence::{FenceTable, FenceView};
use crate::inbox::lock;
use crate::layers::LayerCounter;
use crate::memory::KvMemory;
use crate::options::FabricOptions;
use crate::pace::Pace;
use crate::port::introduce;
use crate::wire::{
    Hello, Offer, ReservationKey, ToReceiver, ToSender, Transport, host_identity, read_message, write_message,
};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// How often the layer counter is read while the next piece is being computed: no thread that computes wakes anybody.
const LAYER_POLL: Duration = Duration::from_micros(500);

pub(crate) struct Link {
    state: Mutex<State>,
    /// Something may have to be sent, or the link is closed.
    changed: Condvar,
}

struct State {
    cursors: Cursors,
    /// Why nothing is sent any more.
    closed: Option<String>,
}

/// What a sender has to offer from.
pub(crate) struct Origin {
    pub(crate) memory: Arc<dyn KvMemory>,
    pub(crate) layers_done: LayerCounter,
    pub(crate) fences: Arc<FenceTable>,
    pub(crate) counters: Arc<FabricCounters>,
    pub(crate) options: FabricOptions,
    pub(crate) pace: Pace,
}

/// What the offering thread does next.
enum Task {
    Send(Next),
    /// There has been nothing to send for a while: say so.
    ShowLife,
    End,
}

impl Link {
    /// Returns at once; the link's own thread connects, and what is to be sent waits for it. A receiver that cannot be reached
    /// fails every hand-off on the link.
    pub(crate) fn open(address: SocketAddr, origin: &Arc<Origin>) -> Result<Arc<Self>, FabricError> {
        let state = State { cursors: Cursors::new(origin.memory.layout().layers), closed: None };
        let link = Arc::new(Self { state: Mutex::new(state), changed: Condvar::new() });
        let (offering, origin) = (Arc::clone(&link), Arc::clone(origin));
        spawn("kv-offer", move || {
            let ended = connect(address, &origin).and_then(|(stream, transport)| {
                let mut answers = BufReader::new(stream.try_clone().map_err(FabricError::Connect)?);
                let (hearing, heard) = (Arc::clone(&offering), Arc::clone(&origin));
                spawn("kv-answers", move || {
                    let ended = hear(&mut answers, &hearing, &heard);
                    // A thread that still writes into the connection sees that it has ended.
                    let _ = answers.get_ref().shutdown(Shutdown::Both);
                    hearing.close(&describe("the receiver is gone", ended));
                })?;
                let mut sending = Offering { origin, transport, stream };
                let ended = sending.run(&offering).map_err(|error| FabricError::Broken(error.to_string()));
                let _ = sending.stream.shutdown(Shutdown::Both);
                ended
            });
            offering.close(&describe("no longer offering", ended));
        })?;
        Ok(link)
    }

    pub(crate) fn is_alive(&self) -> bool {
        lock(&self.state).closed.is_none()
    }

    /// A link that has ended meanwhile answers at once.
    pub(crate) fn begin(&self, reservation: ReservationKey, cursor: Cursor) {
        let mut state = lock(&self.state);
        let replaced = state.cursors.open(reservation, cursor);
        let (closed, orphans) = match state.closed.clone() {
            Some(reason) => (reason, state.cursors.drain()),
            None => (String::new(), Vec::new()),
        };
        drop(state);
        if let Some(on_outcome) = replaced {
            on_outcome(Err("another hand-off goes to the same reservation".to_owned()));
        }
        orphans.into_iter().for_each(|on_outcome| on_outcome(Err(closed.clone())));
    }

    pub(crate) fn forget(&self, reservation: ReservationKey, export: u64) {
        lock(&self.state).cursors.forget(reservation, export);
    }

    pub(crate) fn push(&self, reservation: ReservationKey, export: u64, chunk: Chunk) {
        lock(&self.state).cursors.push(reservation, export, chunk);
        self.changed.notify_one();
    }

    pub(crate) fn finish(&self, reservation: ReservationKey, export: u64, times: PromptTimes) {
        lock(&self.state).cursors.finish(reservation, export, times);
        self.changed.notify_one();
    }

    pub(crate) fn last_taken(&self, reservation: ReservationKey) -> Option<Instant> {
        lock(&self.state).cursors.last_taken(reservation)
    }

    /// Nothing is sent from now on, and every hand-off fails. The first reason counts.
    pub(crate) fn close(&self, reason: &str) {
        let mut state = lock(&self.state);
        state.closed.get_or_insert_with(|| reason.to_owned());
        let orphans = state.cursors.drain();
        drop(state);
        self.changed.notify_one();
        orphans.into_iter().for_each(|on_outcome| on_outcome(Err(reason.to_owned())));
    }

    /// Waits until there is something to do, but no longer than `patience`.
    fn next(&self, layers_done: &LayerCounter, patience: Duration) -> Task {
        let deadline = Instant::now() + patience;
        let mut state = lock(&self.state);
        loop {
            if state.closed.is_some() {
                return Task::End;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            let wait = match state.cursors.next(layers_done.done()) {
                Next::Nothing => left,
                Next::Computing => left.min(LAYER_POLL),
                next => return Task::Send(next),
            };
            if left.is_zero() {
                return Task::ShowLife;
            }
            state = self.changed.wait_timeout(state, wait).unwrap_or_else(PoisonError::into_inner).0;
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
    let (shards, fences) = (origin.memory.addresses(), origin.fences.address());
    let hello = Hello { shards, fences, host: host_identity(), shm_allowed };
    let transport = introduce(&stream, key, limits, &hello)?;
    Ok((stream, transport))
}

fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> Result<(), FabricError> {
    std::thread::Builder::new().name(name.to_owned()).spawn(run).map(drop).map_err(FabricError::Connect)
}

fn hear(answers: &mut BufReader<TcpStream>, link: &Link, origin: &Origin) -> io::Result<()> {
    let counters = &origin.counters;
    while let Some(answer) = read_message(answers)? {
        match answer {
            ToSender::Taken { reservation, bytes, damaged } => {
                FabricCounters::add(&counters.bytes_sent, bytes);
                let layers_done = origin.layers_done.done();
                let early = lock(&link.state).cursors.taken(reservation, damaged, layers_done, Instant::now());
                FabricCounters::add(&counters.bytes_sent_early, if early { bytes } else { 0 });
            }
            ToSender::Finished { reservation, verified_pages } => {
                let delivered = lock(&link.state).cursors.delivered(reservation, verified_pages);
                if let Some((on_outcome, delivered)) = delivered {
                    on_outcome(Ok(delivered));
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
    fn run(&mut self, link: &Link) -> io::Result<()> {
        let keep_alive = self.origin.options.limits.keep_alive();
        loop {
            match link.next(&self.origin.layers_done, keep_alive) {
                Task::Send(Next::Offer(piece)) => self.offer(piece)?,
                Task::Send(Next::Finish { reservation, times }) => {
                    write_message(&mut self.stream, &ToReceiver::Finish { reservation, times })?;
                }
                Task::Send(Next::Computing | Next::Nothing) => {}
                Task::ShowLife => write_message(&mut self.stream, &ToReceiver::Alive)?,
                Task::End => return Ok(()),
            }
        }
    }

    fn offer(&mut self, piece: Piece) -> io::Result<()> {
        let Piece { reservation, fence, layer, first_index, pages } = piece;
        self.wait_for_the_line(pages.len() * self.origin.memory.layout().block_bytes())?;
        let checksums = self.origin.memory.sum(layer, &pages)?;
        // Sums of pages that were reused meanwhile would vouch for the wrong bytes.
        if self.origin.fences.holds(fence) {
            self.send(Offer { reservation, fence, layer, first_index, pages, checksums })?;
        }
        Ok(())
    }

    /// However long that takes, the receiver hears that this end lives.
    fn wait_for_the_line(&mut self, bytes: usize) -> io::Result<()> {
        let keep_alive = self.origin.options.limits.keep_alive();
        let Some(arrival) = self.origin.pace.arrival(bytes) else { return Ok(()) };
        loop {
            let left = arrival.saturating_duration_since(Instant::now());
            std::thread::sleep(left.min(keep_alive));
            if left <= keep_alive {
                return Ok(());
            }
            write_message(&mut self.stream, &ToReceiver::Alive)?;
        }
    }

    fn send(&mut self, offer: Offer) -> io::Result<()> {
        let (layer, pages) = (offer.layer, offer.pages.clone());
        write_message(&mut self.stream, &ToReceiver::Offer(offer))?;
        match self.transport {
            Transport::Shm => Ok(()),
            Transport::Tcp => self.origin.memory.send(layer, &pages, &mut self.stream),
        }
    }
}
