//! The prefill engine's end of the side channel: answers fetches.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt, ready};
use tokio::io::{AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;

use super::config::Dialect;
use super::counters::count;
use super::engine::DialectEngine;
use super::handoffs::KvError;
use super::side_channel::{Fetched, QUEUED, read_fetch, write_answer};

const ACCEPT_RETRY: Duration = Duration::from_millis(200);

/// Serves fetches on a prefill engine.
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
        let fetched: BoxFuture<'static, Fetched> = match engine.dialect {
            Dialect::Vllm => ready(engine.handoffs.offers.take(&name, prompt)).boxed(),
            Dialect::Sglang => match name.parse() {
                Ok(room) => engine.handoffs.sessions.join(room, prompt).boxed(),
                Err(_) => ready(Err(KvError::Unknown)).boxed(),
            },
        };
        let (answers, engine) = (answers.clone(), Arc::clone(&engine));
        tokio::spawn(async move {
            let fetched = fetched.await;
            count_outcome(&engine, fetched);
            // The connection may have ended.
            let _ = answers.send(write_answer(tag, fetched)).await;
        });
    }
}

fn count_outcome(engine: &DialectEngine, fetched: Fetched) {
    let counters = &engine.counters;
    match fetched {
        Ok(_) => count(&counters.kv_taken),
        Err(KvError::Used) => count(&counters.kv_reused),
        Err(KvError::Expired | KvError::PeerTimeout) => count(&counters.kv_expired),
        Err(KvError::OtherPrompt) => count(&counters.kv_mismatched),
        Err(KvError::Unknown | KvError::Gone) => count(&counters.kv_unknown),
    }
}
