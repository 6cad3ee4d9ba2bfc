//! From a listening socket to answered requests, until shutdown.

use std::io;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody};
use hyper::body::{Frame, Incoming, SizeHint};
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::connection::Connection;
use crate::connections::{ActiveRequest, ConnectionSlot, Connections};
use crate::gateway::GatewayConfig;
use crate::warn_limit::WarnLimit;
use crate::{Gateway, preemptions, router};

/// When the process has no file descriptor left, others have to give some back first.
const ACCEPT_RETRY: Duration = Duration::from_millis(200);
/// For what is still on its way on a connection that is to close and answers no request.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);
/// Of a request's head, and of what waits to be written.
const CONNECTION_BUFFER: usize = 32 << 10;

/// When `shutdown` is done no more connections are taken; requests in flight are answered to their end.
pub async fn serve(
    listener: TcpListener,
    gateway: Arc<Gateway>,
    shutdown: impl Future<Output = ()> + Send + 'static,
) -> io::Result<()> {
    let config = gateway.config.clone();
    let connections = Connections::new(config.max_connections);
    let mut watch = JoinSet::new();
    watch.spawn(preemptions::watch(Arc::clone(&gateway)));
    let routes = router(gateway);
    let mut shutdown = pin!(shutdown);
    let acceptor = Acceptor::new(listener);
    loop {
        let next = async {
            let (socket, _) = acceptor.accept().await;
            (socket, connections.slot().await)
        };
        let (socket, slot) = tokio::select! {
            biased;
            () = &mut shutdown => break,
            next = next => next,
        };
        let (config, routes) = (config.clone(), routes.clone());
        tokio::spawn(async move { serve_connection(socket, slot, &config, routes).await });
    }
    drop(acceptor);
    connections.end().await;
    Ok(())
}

/// One connection, to its end, or until another client needs its place.
pub(crate) async fn serve_connection(
    socket: TcpStream,
    slot: Arc<ConnectionSlot>,
    config: &GatewayConfig,
    routes: axum::Router,
) {
    let routes = TowerToHyperService::new(routes);
    let service = service_fn(|request: hyper::Request<Incoming>| {
        let (active, answer) = (slot.begin_request(), routes.call(request));
        async move { Ok::<_, std::convert::Infallible>(answer.await?.map(|body| Answer { body, _active: active })) }
    });
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(config.head_timeout).max_buf_size(CONNECTION_BUFFER);
    let socket = TokioIo::new(Connection::new(socket, config.stall_timeout));
    let mut connection = pin!(http.serve_connection(socket, service));
    let mut ended = tokio::select! {
        biased;
        ended = connection.as_mut() => Some(ended),
        () = slot.close_requested() => None,
    };
    if ended.is_none() {
        connection.as_mut().graceful_shutdown();
    }
    while ended.is_none() {
        ended = timeout(CLOSE_TIMEOUT, connection.as_mut()).await.ok();
        if ended.is_none() && slot.is_idle() {
            return;
        }
    }
    if let Some(Err(error)) = ended {
        tracing::debug!(%error, "a connection ended early");
    }
}

/// An answer's body; until its last piece is handed over its connection is busy.
struct Answer {
    body: Body,
    _active: ActiveRequest,
}

impl HttpBody for Answer {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Takes connections from a listener, also after it could not.
pub(crate) struct Acceptor {
    listener: TcpListener,
    failures: WarnLimit,
}

impl Acceptor {
    pub(crate) fn new(listener: TcpListener) -> Self {
        Self { listener, failures: WarnLimit::default() }
    }

    pub(crate) async fn accept(&self) -> (TcpStream, SocketAddr) {
        loop {
            match self.listener.accept().await {
                Ok((socket, peer)) => {
                    // A token is a packet: waiting for more of them would only add latency.
                    if let Err(error) = socket.set_nodelay(true) {
                        tracing::debug!(%error, "TCP_NODELAY could not be set");
                    }
                    return (socket, peer);
                }
                Err(error) => {
                    if self.failures.should_warn() {
                        tracing::warn!(%error, "connections cannot be accepted; trying again until they can");
                    }
                    sleep(ACCEPT_RETRY).await;
                }
            }
        }
    }
}
