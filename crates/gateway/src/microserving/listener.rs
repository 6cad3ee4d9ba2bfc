//! One port for sessions and HTTP: the first byte of a connection decides which it is.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use baton_protocol::{FIRST_BYTE, SessionHost, serve_session};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::EngineFace;
use crate::connections::{ConnectionSlot, Connections};
use crate::serve::{Acceptor, serve_connection};

/// A connection on which nothing arrives for this long is closed.
const FIRST_BYTE_TIMEOUT: Duration = Duration::from_secs(10);

/// Accepts until it is dropped; that also ends all that is open.
pub async fn serve_engine(listener: TcpListener, face: EngineFace, host: impl SessionHost) {
    let slots = Connections::new(face.config.max_connections);
    let (face, host, acceptor) = (Arc::new(face), Arc::new(host), Acceptor::new(listener));
    let mut connections = JoinSet::new();
    loop {
        let (socket, peer) = acceptor.accept().await;
        let slot = slots.slot().await;
        while connections.try_join_next().is_some() {}
        connections.spawn(handle_connection(socket, peer, slot, Arc::clone(&face), Arc::clone(&host)));
    }
}

async fn handle_connection(
    socket: TcpStream,
    peer: SocketAddr,
    slot: Arc<ConnectionSlot>,
    face: Arc<EngineFace>,
    host: Arc<impl SessionHost>,
) {
    let mut first = [0];
    let peeked = tokio::select! {
        biased;
        peeked = timeout(FIRST_BYTE_TIMEOUT, socket.peek(&mut first)) => peeked,
        () = slot.close_requested() => return,
    };
    match peeked {
        Ok(Ok(1)) if first == [FIRST_BYTE] => {
            // A router's session is never idle, whatever is on it.
            let _active = slot.begin_request();
            serve_session(socket, peer, &face.secret, host).await;
        }
        Ok(Ok(1)) => {
            let routes = face.routes(peer.ip()).await;
            serve_connection(socket, slot, &face.config, routes).await;
        }
        _ => tracing::debug!(%peer, "a connection ended or timed out before its first byte"),
    }
}
