//! The connection behind a link: one thread connects and offers, another one reads the answers.

use std::io::{self, BufReader};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::counters::FabricCounters;
use crate::cursor::{Next, Piece};
use crate::error::FabricError;
use crate::fence::{FenceTable, FenceView};
use crate::layers::LayerCounter;
use crate::link::{Link, Task};
use crate::memory::KvMemory;
use crate::options::FabricOptions;
use crate::pace::Pace;
use crate::port::introduce;
use crate::wire::{Hello, Offer, ToReceiver, ToSender, Transport, host_identity, read_message, write_message};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);

/// What a sender has to offer from.
pub(crate) struct Origin {
    pub(crate) memory: Arc<dyn KvMemory>,
    pub(crate) layers_done: LayerCounter,
    pub(crate) fences: Arc<FenceTable>,
    pub(crate) counters: Arc<FabricCounters>,
    pub(crate) options: FabricOptions,
    pub(crate) pace: Pace,
}

/// Returns at once: what is to be sent waits until the link's thread has connected. A receiver that cannot be reached fails
/// every hand-off on the link.
pub(crate) fn open(address: SocketAddr, origin: &Arc<Origin>) -> Result<Arc<Link>, FabricError> {
    let link = Arc::new(Link::new(origin.memory.layout().layers));
    let (offering, origin) = (Arc::clone(&link), Arc::clone(origin));
    spawn("kv-offer", move || {
        let ended = run(address, &origin, &offering);
        offering.close(&describe("no longer offering", ended));
    })?;
    Ok(link)
}

fn run(address: SocketAddr, origin: &Arc<Origin>, link: &Arc<Link>) -> Result<(), FabricError> {
    let (stream, transport) = connect(address, origin)?;
    let mut answers = BufReader::new(stream.try_clone().map_err(FabricError::Connect)?);
    let (answered, from) = (Arc::clone(link), Arc::clone(origin));
    spawn("kv-answers", move || {
        let ended = read_answers(&mut answers, &answered, &from);
        // A thread that still writes into the connection sees that it has ended.
        let _ = answers.get_ref().shutdown(Shutdown::Both);
        answered.close(&describe("the receiver is gone", ended));
    })?;
    let mut offering = Offering { origin: Arc::clone(origin), transport, stream };
    let ended = offering.run(link).map_err(|error| FabricError::Broken(error.to_string()));
    let _ = offering.stream.shutdown(Shutdown::Both);
    ended
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

fn read_answers(answers: &mut BufReader<TcpStream>, link: &Link, origin: &Origin) -> io::Result<()> {
    let counters = &origin.counters;
    while let Some(answer) = read_message(answers)? {
        match answer {
            ToSender::Taken { reservation, bytes, damaged } => {
                FabricCounters::add(&counters.bytes_sent, bytes);
                let early = link.taken(reservation, damaged, origin.layers_done.done(), Instant::now());
                FabricCounters::add(&counters.bytes_sent_early, if early { bytes } else { 0 });
            }
            ToSender::Finished { reservation, verified_pages } => link.delivered(reservation, verified_pages),
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

    /// Shows the receiver that this end lives, however long the line is busy.
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
