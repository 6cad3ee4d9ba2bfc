//! One port for everybody: the first byte says whether a session or HTTP follows.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use baton_protocol::{FIRST_BYTE, SessionHost, serve_session};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::EngineFace;
use crate::serve::{accept, serve_connection};

/// Routers and callers that may be connected at once; further ones wait to be accepted.
const MAX_CONNECTIONS: usize = 1024;
/// Whoever connects has something to say.
const FIRST_BYTE_TIMEOUT: Duration = Duration::from_secs(10);

/// Accepts until it is dropped; that also ends all that is open.
pub async fn serve_engine(listener: TcpListener, face: EngineFace, host: impl SessionHost) {
    let (face, host) = (Arc::new(face), Arc::new(host));
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            biased;
            Some(_ended) = connections.join_next() => {}
            (socket, peer) = accept(&listener), if connections.len() < MAX_CONNECTIONS => {
                connections.spawn(welcome(socket, peer, Arc::clone(&face), Arc::clone(&host)));
            }
        }
    }
}

async fn welcome(socket: TcpStream, peer: SocketAddr, face: Arc<EngineFace>, host: Arc<impl SessionHost>) {
    let mut first = [0];
    match timeout(FIRST_BYTE_TIMEOUT, socket.peek(&mut first)).await {
        Ok(Ok(1)) if first == [FIRST_BYTE] => serve_session(socket, peer, &face.secret, host).await,
        Ok(Ok(1)) => {
            let routes = face.routes(peer.ip()).await;
            serve_connection(socket, &face.config, routes).await;
        }
        _ => tracing::debug!(%peer, "a connection on which nothing was said"),
    }
}
