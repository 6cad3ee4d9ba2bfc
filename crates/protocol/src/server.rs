//! The engine's end of sessions: one connection per router, all of a router's requests on it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use baton_core::{Attempt, EngineEvent, EngineReport, FailedEvent, RequestId, ServeError};
use tokio::io::BufReader;
use tokio::net::tcp::OwnedReadHalf;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::error::SessionError;
use crate::frame::{FrameLimits, read_frame};
use crate::handshake::admit;
use crate::host::{SessionHost, SessionId};
use crate::keepalive::notice_death;
use crate::message::Message;
use crate::outbox::write_queue;
use crate::secret::Secret;
use crate::{Command, StepReply};

/// Routers that may be connected at once, unproven ones included.
const MAX_CONNECTIONS: usize = 256;

/// Accepts nothing but sessions until it is dropped; that also ends all open ones.
pub async fn serve_sessions(listener: TcpListener, secret: Secret, host: impl SessionHost) {
    let host = Arc::new(host);
    let mut sessions = JoinSet::new();
    loop {
        tokio::select! {
            biased;
            Some(_ended) = sessions.join_next() => {}
            accepted = listener.accept(), if sessions.len() < MAX_CONNECTIONS => match accepted {
                Ok((stream, peer)) => {
                    let (secret, host) = (secret.clone(), Arc::clone(&host));
                    sessions.spawn(async move { serve_session(stream, peer, &secret, host).await });
                }
                // Out of file descriptors, most likely: accepting again at once would only spin.
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a session");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            },
        }
    }
}

/// One session, from its handshake to its end.
pub async fn serve_session(stream: TcpStream, peer: SocketAddr, secret: &Secret, host: Arc<impl SessionHost>) {
    match converse(stream, secret, host).await {
        Ok(()) | Err(SessionError::Closed) => tracing::debug!(%peer, "session ended"),
        Err(error) => tracing::warn!(%peer, %error, "session broke"),
    }
}

async fn converse(mut stream: TcpStream, secret: &Secret, host: Arc<impl SessionHost>) -> Result<(), SessionError> {
    stream.set_nodelay(true)?;
    notice_death(&stream)?;
    admit(&mut stream, secret, host.info()).await?;
    let (input, output) = stream.into_split();
    let (outbox, replies) = mpsc::unbounded_channel();
    // Only the host keeps the queue open: when the engine ends, so do its sessions.
    let refusals = outbox.downgrade();
    let session = OpenSession { id: host.open(outbox), host };
    let heartbeat = || session.host.heartbeat();
    tokio::select! {
        biased;
        ended = write_queue(replies, output, |reply: StepReply, out| reply.encode(out), Some(&heartbeat)) => ended,
        ended = read_commands(input, &session, &refusals) => ended,
    }
}

/// Ending it, however that happens, aborts the session's requests.
struct OpenSession<H: SessionHost> {
    id: SessionId,
    host: Arc<H>,
}

impl<H: SessionHost> Drop for OpenSession<H> {
    fn drop(&mut self) {
        self.host.close(self.id);
    }
}

async fn read_commands(
    input: OwnedReadHalf,
    session: &OpenSession<impl SessionHost>,
    refusals: &mpsc::WeakUnboundedSender<StepReply>,
) -> Result<(), SessionError> {
    let mut input = BufReader::with_capacity(64 << 10, input);
    while let Some(frame) = read_frame(&mut input, FrameLimits::SESSION).await? {
        let command = Command::decode(frame)?;
        let opens = command.opens();
        if let Err(error) = session.host.send(session.id, command)
            && let Some((request, attempt)) = opens
            && let Some(outbox) = refusals.upgrade()
        {
            // A closed queue is seen by its reader.
            let _ = outbox.send(refusal(request, attempt, error));
        }
    }
    Ok(())
}

/// The default report has sequence 0, older than any real one.
fn refusal(request: RequestId, attempt: Attempt, error: ServeError) -> StepReply {
    let failed = EngineEvent::Failed(FailedEvent { request, attempt, error });
    StepReply { report: EngineReport::default(), events: vec![failed], cache: None }
}
