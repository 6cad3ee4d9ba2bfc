//! The router's end of a session: an [`Engine`] at the other end of a TCP connection.

use std::net::SocketAddr;
use std::sync::Arc;

use baton_core::{EngineInfo, EngineReport, GenerateRequest, ServeError, TokenRange};
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, ready};
use tokio::io::BufReader;
use tokio::net::TcpStream;
use tokio::net::tcp::OwnedReadHalf;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use crate::error::SessionError;
use crate::frame::{FrameLimits, Kind, read_frame};
use crate::handshake::introduce;
use crate::keepalive::notice_death;
use crate::message::Message;
use crate::open_requests::OpenRequests;
use crate::outbox::write_queue;
use crate::secret::Secret;
use crate::{
    CacheFollower, Caller, Command, CommandSink, Destination, Engine, Heartbeat, Heartbeats, Reservation, Sent,
    StepReply, TokenStream,
};

/// Dropping it closes the connection, and with it every request that is still open.
pub struct SessionClient {
    info: EngineInfo,
    open: Arc<OpenRequests>,
    /// Its queue holds a few commands for each open request at most, so it needs no bound of its own.
    caller: Caller<mpsc::UnboundedSender<Command>>,
    connection: JoinHandle<()>,
}

impl SessionClient {
    pub async fn connect(address: SocketAddr, secret: &Secret) -> Result<Self, SessionError> {
        let mut stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        notice_death(&stream)?;
        let info = introduce(&mut stream, secret).await?;
        let (commands, queue) = mpsc::unbounded_channel();
        let open = Arc::new(OpenRequests::default());
        let connection = tokio::spawn(run(stream, queue, Arc::clone(&open), address));
        Ok(Self { info, caller: Caller::new(commands, Arc::clone(&open)), open, connection })
    }

    /// Waits until the engine is known to be gone.
    pub async fn closed(&self) {
        self.open.ended().await;
    }
}

impl Engine for SessionClient {
    fn info(&self) -> &EngineInfo {
        &self.info
    }

    fn report(&self) -> EngineReport {
        self.open.report()
    }

    fn heartbeats(&self) -> Option<Heartbeats> {
        Some(self.open.heartbeats())
    }

    fn follow_cache(&self, follower: Arc<dyn CacheFollower>) {
        self.caller.follow_cache(follower);
    }

    fn is_alive(&self) -> bool {
        self.open.is_alive()
    }

    fn prep_recv(&self, request: &GenerateRequest, end: u32) -> BoxFuture<'static, Result<Reservation, ServeError>> {
        self.caller.prep_recv(request, end, None)
    }

    fn remote_send(
        &self,
        request: &GenerateRequest,
        to: &Destination,
        range: TokenRange,
    ) -> BoxFuture<'static, Result<Sent, ServeError>> {
        self.caller.remote_send(request, to, range)
    }

    fn start_generate(
        &self,
        request: GenerateRequest,
        handoff: Option<(Reservation, Option<Sent>)>,
    ) -> BoxFuture<'static, Result<TokenStream, ServeError>> {
        ready(self.caller.start_generate(request, handoff)).boxed()
    }
}

impl CommandSink for mpsc::UnboundedSender<Command> {
    fn send(&self, command: Command) -> Result<(), ServeError> {
        Self::send(self, command).map_err(|_| SessionError::Closed.into())
    }
}

impl Drop for SessionClient {
    fn drop(&mut self) {
        self.connection.abort();
        self.open.end();
    }
}

async fn run(stream: TcpStream, queue: mpsc::UnboundedReceiver<Command>, open: Arc<OpenRequests>, address: SocketAddr) {
    let (input, output) = stream.into_split();
    let ended = tokio::select! {
        biased;
        ended = read_replies(input, &open) => ended,
        ended = write_queue(queue, output, Command::encode, None) => ended,
    };
    open.end();
    match ended {
        Ok(()) | Err(SessionError::Closed) => tracing::debug!(%address, "session ended"),
        Err(error) => tracing::warn!(%address, %error, "session broke"),
    }
}

async fn read_replies(input: OwnedReadHalf, open: &OpenRequests) -> Result<(), SessionError> {
    let mut input = BufReader::with_capacity(64 << 10, input);
    while let Some(frame) = read_frame(&mut input, FrameLimits::SESSION).await? {
        match frame.kind {
            Kind::Heartbeat => open.receive(Heartbeat::decode(frame)?),
            _ => open.deliver(StepReply::decode(frame)?),
        }
    }
    Ok(())
}
