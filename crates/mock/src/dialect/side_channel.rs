//! How a mock decode engine fetches KV from a mock prefill engine: one connection per pair, many requests on it. It stands in
//! for NIXL and Mooncake, which routers do not see; only the KV's name, its prompt's hash and its length are sent.
//!
//! ```text
//!   fetch    tag: u64 │ prompt: u64 │ length: u8 │ name        answer   tag: u64 │ tokens + 1, or 0: u32 │ error: u8
//! ```

use std::collections::HashMap;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::sync::{mpsc, oneshot};

use super::bounded_map::lock;
use super::handoffs::KvError;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Fetches or answers that may wait to be written.
pub(super) const QUEUED: usize = 1024;

pub(super) type Fetched = Result<u32, KvError>;

pub(super) async fn read_fetch(input: &mut (impl AsyncRead + Unpin)) -> io::Result<(u64, u64, String)> {
    let (tag, prompt) = (input.read_u64().await?, input.read_u64().await?);
    let mut name = vec![0; input.read_u8().await?.into()];
    input.read_exact(&mut name).await?;
    Ok((tag, prompt, String::from_utf8_lossy(&name).into_owned()))
}

pub(super) fn write_answer(tag: u64, fetched: Fetched) -> Vec<u8> {
    let mut bytes = tag.to_be_bytes().to_vec();
    let tokens = fetched.map_or(0, |tokens| tokens.saturating_add(1));
    bytes.extend_from_slice(&tokens.to_be_bytes());
    bytes.push(fetched.err().map_or(0, |error| error as u8));
    bytes
}

async fn read_answer(input: &mut (impl AsyncRead + Unpin)) -> io::Result<(u64, Fetched)> {
    let (tag, tokens, code) = (input.read_u64().await?, input.read_u32().await?, input.read_u8().await?);
    let all =
        [KvError::Unknown, KvError::Used, KvError::Expired, KvError::OtherPrompt, KvError::Gone, KvError::PeerTimeout];
    let error = all.into_iter().find(|known| *known as u8 == code).unwrap_or(KvError::Gone);
    Ok((tag, tokens.checked_sub(1).ok_or(error)))
}

/// A decode engine's connections to the prefill engines that it has fetched from.
#[derive(Default)]
pub(super) struct RemoteEngines {
    links: Mutex<HashMap<(String, u16), Arc<PeerLink>>>,
}

struct PeerLink {
    fetches: mpsc::Sender<Vec<u8>>,
    next_tag: AtomicU64,
    waiting: Arc<PendingFetches>,
}

/// Pending fetches by tag; `None` once the connection has ended.
type PendingFetches = Mutex<Option<HashMap<u64, oneshot::Sender<Fetched>>>>;

impl RemoteEngines {
    /// `name` has at most 255 bytes.
    pub(super) async fn fetch(&self, host: &str, port: u16, name: &str, prompt: u64) -> Fetched {
        let length = u8::try_from(name.len()).map_err(|_| KvError::Unknown)?;
        let (answer, answered) = oneshot::channel();
        let (link, tag) = self.register(host, port, answer);
        let mut fetch = tag.to_be_bytes().to_vec();
        fetch.extend_from_slice(&prompt.to_be_bytes());
        fetch.push(length);
        fetch.extend_from_slice(name.as_bytes());
        link.fetches.send(fetch).await.map_err(|_| KvError::Gone)?;
        answered.await.unwrap_or(Err(KvError::Gone))
    }

    fn register(&self, host: &str, port: u16, answer: oneshot::Sender<Fetched>) -> (Arc<PeerLink>, u64) {
        let mut links = lock(&self.links);
        let link = links.entry((host.to_owned(), port)).or_insert_with(|| PeerLink::open(host, port));
        if lock(&link.waiting).is_none() {
            *link = PeerLink::open(host, port);
        }
        let tag = link.next_tag.fetch_add(1, Ordering::Relaxed);
        // If the connection has just ended, the sender is dropped, which reports `KvError::Gone`.
        if let Some(waiting) = &mut *lock(&link.waiting) {
            waiting.insert(tag, answer);
        }
        (Arc::clone(link), tag)
    }
}

impl PeerLink {
    /// Connects in the background; fetches wait in the queue meanwhile.
    fn open(host: &str, port: u16) -> Arc<Self> {
        let (fetches, queue) = mpsc::channel(QUEUED);
        let waiting = Arc::new(PendingFetches::new(Some(HashMap::new())));
        let (address, answers) = ((host.to_owned(), port), Arc::clone(&waiting));
        tokio::spawn(async move {
            if let Err(error) = run_link(address, queue, &answers).await {
                tracing::debug!(%error, "lost the connection to a prefill engine");
            }
            // Dropping the senders reports the end to all pending fetches.
            drop(lock(&answers).take());
        });
        Arc::new(Self { fetches, next_tag: AtomicU64::new(0), waiting })
    }
}

async fn run_link(
    address: (String, u16),
    mut queue: mpsc::Receiver<Vec<u8>>,
    waiting: &PendingFetches,
) -> io::Result<()> {
    let socket = tokio::time::timeout(CONNECT_TIMEOUT, TcpStream::connect(address)).await??;
    socket.set_nodelay(true)?;
    let (input, mut output) = socket.into_split();
    let sending = async {
        while let Some(fetch) = queue.recv().await {
            output.write_all(&fetch).await?;
        }
        Ok(())
    };
    let receiving = async {
        let mut input = BufReader::new(input);
        loop {
            let (tag, fetched) = read_answer(&mut input).await?;
            let pending = lock(waiting).as_mut().and_then(|waiting| waiting.remove(&tag));
            if let Some(pending) = pending {
                // The request may have been dropped.
                let _ = pending.send(fetched);
            }
        }
    };
    tokio::select! {
        ended = sending => ended,
        ended = receiving => ended,
    }
}
