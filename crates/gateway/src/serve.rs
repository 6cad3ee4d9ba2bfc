//! From a listening socket to answered requests, until told to stop.

use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};

use crate::connection::Connection;
use crate::gateway::GatewayConfig;
use crate::{Gateway, router};

/// When the process has no file descriptor left, others have to give some back first.
const ACCEPT_RETRY: Duration = Duration::from_millis(200);

/// When `shutdown` is done no more connections are taken; requests in flight are answered to their end.
pub async fn serve(
    listener: TcpListener,
    gateway: Arc<Gateway>,
    shutdown: impl Future<Output = ()> + Send + 'static,
) -> io::Result<()> {
    let config = gateway.config.clone();
    let service = TowerToHyperService::new(router(gateway));
    let http = http(&config);
    let open = GracefulShutdown::new();
    let mut shutdown = pin!(shutdown);
    loop {
        let (socket, _) = tokio::select! {
            biased;
            () = &mut shutdown => break,
            accepted = accept(&listener) => accepted,
        };
        let connection = TokioIo::new(Connection::new(socket, config.stall_timeout));
        let served = open.watch(http.serve_connection(connection, service.clone()));
        tokio::spawn(async move {
            if let Err(error) = served.await {
                tracing::debug!(%error, "a connection ended early");
            }
        });
    }
    drop(listener);
    open.shutdown().await;
    Ok(())
}

/// One connection, to its end.
pub(crate) async fn serve_connection(socket: TcpStream, config: &GatewayConfig, routes: axum::Router) {
    let connection = TokioIo::new(Connection::new(socket, config.stall_timeout));
    if let Err(error) = http(config).serve_connection(connection, TowerToHyperService::new(routes)).await {
        tracing::debug!(%error, "a connection ended early");
    }
}

fn http(config: &GatewayConfig) -> http1::Builder {
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(config.head_timeout);
    http
}

pub(crate) async fn accept(listener: &TcpListener) -> (TcpStream, SocketAddr) {
    loop {
        match listener.accept().await {
            Ok((socket, peer)) => {
                // A token is a packet: waiting for more of them would only add latency.
                if let Err(error) = socket.set_nodelay(true) {
                    tracing::debug!(%error, "TCP_NODELAY could not be set");
                }
                return (socket, peer);
            }
            Err(error) => {
                tracing::warn!(%error, "a connection could not be accepted");
                tokio::time::sleep(ACCEPT_RETRY).await;
            }
        }
    }
}
