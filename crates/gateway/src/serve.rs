//! From a listening socket to answered requests, until told to stop.

use std::io;
use std::sync::Arc;

use axum::serve::ListenerExt;
use tokio::net::TcpListener;

use crate::{Gateway, router};

/// When `shutdown` is done no more connections are taken; requests in flight are answered to their end.
pub async fn serve(
    listener: TcpListener,
    gateway: Arc<Gateway>,
    shutdown: impl Future<Output = ()> + Send + 'static,
) -> io::Result<()> {
    let listener = listener.tap_io(|connection| {
        // A token is a packet: waiting for more of them would only add latency.
        if let Err(error) = connection.set_nodelay(true) {
            tracing::debug!(%error, "TCP_NODELAY could not be set");
        }
    });
    axum::serve(listener, router(gateway)).with_graceful_shutdown(shutdown).await
}
