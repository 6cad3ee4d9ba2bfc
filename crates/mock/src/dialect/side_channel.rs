//! How one mock fetches KV from another: a connection per pair, many requests on it. It stands in for NIXL and Mooncake,
//! which is no part of what routers see; of the KV only its name, its prompt's hash and its length travel.
//!
//! ```text
//!   fetch    tag: u64 │ prompt: u64 │ length: u8 │ name        answer   tag: u64 │ tokens + 1, or 0: u32 │ refusal: u8
//! ```

use std::collections::HashMap;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, oneshot};

use super::book::lock;
use super::counters::count;
use super::desk::Refusal;
use super::{Dialect, DialectEngine};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
const ACCEPT_RETRY: Duration = Duration::from_millis(200);
/// Fetches or answers that may wait to be written.
const QUEUED: usize = 1024;

type Fetched = Result<u32, Refusal>;

/// On a prefill engine.
pub(super) async fn serve(listener: TcpListener, engine: Arc<DialectEngine>) {
    loop {
        match listener.accept().await {
            Ok((socket, _)) => drop(tokio::spawn(serve_one(socket, Arc::clone(&engine)))),
            Err(_) => tokio::time::sleep(ACCEPT_RETRY).await,
        }
    }
}

async fn serve_one(socket: TcpStream, engine: Arc<DialectEngine>) -> io::Result<()> {
    socket.set_nodelay(true)?;
    let (input, mut output) = socket.into_split();
    let (answers, mut queue) = mpsc::channel::<Vec<u8>>(QUEUED);
    tokio::spawn(async move {
        while let Some(answer) = queue.recv().await {
            if output.write_all(&answer).await.is_err() {
                return;
            }
        }
    });
    let mut input = BufReader::new(input);
    loop {
        let (tag, prompt, name) = read_fetch(&mut input).await?;
        let fetched: futures_util::future::BoxFuture<'static, Fetched> = match engine.dialect {
            Dialect::Vllm => Box::pin(std::future::ready(engine.desk.offers.take(&name, prompt))),
            Dialect::Sglang => match name.parse() {
                Ok(room) => Box::pin(engine.desk.rooms.join(room, prompt)),
                Err(_) => Box::pin(std::future::ready(Err(Refusal::Unknown))),
            },
        };
        let (answers, engine) = (answers.clone(), Arc::clone(&engine));
        tokio::spawn(async move {
            let fetched = fetched.await;
            note(&engine, fetched);
            // Nobody to tell when the connection has ended.
            let _ = answers.send(answer(tag, fetched)).await;
        });
    }
}

fn note(engine: &DialectEngine, fetched: Fetched) {
    let counters = &engine.counters;
    match fetched {
        Ok(_) => count(&counters.kv_taken),
        Err(Refusal::Used) => count(&counters.kv_reused),
        Err(Refusal::Expired | Refusal::NoShow) => count(&counters.kv_expired),
        Err(Refusal::OtherPrompt) => count(&counters.kv_mismatched),
        Err(Refusal::Unknown | Refusal::Gone) => count(&counters.kv_unknown),
    }
}

async fn read_fetch(input: &mut (impl AsyncRead + Unpin)) -> io::Result<(u64, u64, String)> {
    let (tag, prompt) = (input.read_u64().await?, input.read_u64().await?);
    let mut name = vec![0; input.read_u8().await?.into()];
    input.read_exact(&mut name).await?;
    Ok((tag, prompt, String::from_utf8_lossy(&name).into_owned()))
}

fn answer(tag: u64, fetched: Fetched) -> Vec<u8> {
    let mut bytes = tag.to_be_bytes().to_vec();
    let tokens = fetched.map_or(0, |tokens| tokens.saturating_add(1));
    bytes.extend_from_slice(&tokens.to_be_bytes());
    bytes.push(fetched.err().map_or(0, |refusal| refusal as u8));
    bytes
}

async fn read_answer(input: &mut (impl AsyncRead + Unpin)) -> io::Result<(u64, Fetched)> {
    let (tag, tokens, refusal) = (input.read_u64().await?, input.read_u32().await?, input.read_u8().await?);
    let all = [Refusal::Unknown, Refusal::Used, Refusal::Expired, Refusal::OtherPrompt, Refusal::Gone, Refusal::NoShow];
    let refusal = all.into_iter().find(|known| *known as u8 == refusal).unwrap_or(Refusal::Gone);
    Ok((tag, tokens.checked_sub(1).ok_or(refusal)))
}

/// On a decode engine: connections to all prefill engines it has fetched from.
#[derive(Default)]
pub(super) struct RemoteDesks {
    links: Mutex<HashMap<(String, u16), Arc<Link>>>,
}

struct Link {
    fetches: mpsc::Sender<Vec<u8>>,
    next_tag: AtomicU64,
    waiting: Arc<Waiting>,
}

/// Who waits for which answer; `None` once the connection has ended.
type Waiting = Mutex<Option<HashMap<u64, oneshot::Sender<Fetched>>>>;

impl RemoteDesks {
    /// `name` in at most 255 bytes.
    pub(super) async fn fetch(&self, host: &str, port: u16, name: &str, prompt: u64) -> Fetched {
        let length = u8::try_from(name.len()).map_err(|_| Refusal::Unknown)?;
        let (answer, answered) = oneshot::channel();
        let (link, tag) = self.register(host, port, answer);
        let mut fetch = tag.to_be_bytes().to_vec();
        fetch.extend_from_slice(&prompt.to_be_bytes());
        fetch.push(length);
        fetch.extend_from_slice(name.as_bytes());
        link.fetches.send(fetch).await.map_err(|_| Refusal::Gone)?;
        answered.await.unwrap_or(Err(Refusal::Gone))
    }

    fn register(&self, host: &str, port: u16, answer: oneshot::Sender<Fetched>) -> (Arc<Link>, u64) {
        let mut links = lock(&self.links);
        let link = links.entry((host.to_owned(), port)).or_insert_with(|| Link::open(host, port));
        if lock(&link.waiting).is_none() {
            *link = Link::open(host, port);
        }
        let tag = link.next_tag.fetch_add(1, Ordering::Relaxed);
        // Should the connection end right now, the sender is dropped: that is an answer too.
        if let Some(waiting) = &mut *lock(&link.waiting) {
            waiting.insert(tag, answer);
        }
        (Arc::clone(link), tag)
    }
}

impl Link {
    /// Connects by itself; fetches wait for it.
    fn open(host: &str, port: u16) -> Arc<Self> {
        let (fetches, queue) = mpsc::channel(QUEUED);
        let waiting = Arc::new(Waiting::new(Some(HashMap::new())));
        let (address, answers) = ((host.to_owned(), port), Arc::clone(&waiting));
        tokio::spawn(async move {
            if let Err(error) = carry(address, queue, &answers).await {
                tracing::debug!(%error, "a prefill engine is gone");
            }
            // Drops whoever still waits, which tells them.
            drop(lock(&answers).take());
        });
        Arc::new(Self { fetches, next_tag: AtomicU64::new(0), waiting })
    }
}

async fn carry(address: (String, u16), mut queue: mpsc::Receiver<Vec<u8>>, waiting: &Waiting) -> io::Result<()> {
    let socket = tokio::time::timeout(CONNECT_TIMEOUT, TcpStream::connect(address)).await??;
    socket.set_nodelay(true)?;
    let (input, mut output) = socket.into_split();
    let sending = async {
        while let Some(fetch) = queue.recv().await {
            output.write_all(&fetch).await?;
        }
        Ok(())
    };
    let hearing = async {
        let mut input = BufReader::new(input);
        loop {
            let (tag, fetched) = read_answer(&mut input).await?;
            let waits = lock(waiting).as_mut().and_then(|waiting| waiting.remove(&tag));
            if let Some(waits) = waits {
                // Whoever asked may have gone.
                let _ = waits.send(fetched);
            }
        }
    };
    tokio::select! {
        ended = sending => ended,
        ended = hearing => ended,
    }
}
