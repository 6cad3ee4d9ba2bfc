//! A host that has died or been cut off does not even close its connections: TCP keepalive finds out.

use std::io;
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use tokio::net::TcpStream;

/// After this long without a packet the kernel probes the peer, and again until three probes have had no answer.
const IDLE: Duration = Duration::from_secs(4);
const PROBE_INTERVAL: Duration = Duration::from_secs(2);
const PROBES: u32 = 3;
/// Longest that sent bytes may stay unconfirmed. A process that is merely slow or stopped does not matter: its kernel confirms.
const UNCONFIRMED: Duration = Duration::from_secs(10);

/// Either way the connection breaks within about ten seconds of its peer's end.
pub(crate) fn notice_death(stream: &TcpStream) -> io::Result<()> {
    let socket = SockRef::from(stream);
    let keepalive = TcpKeepalive::new().with_time(IDLE).with_interval(PROBE_INTERVAL).with_retries(PROBES);
    socket.set_tcp_keepalive(&keepalive)?;
    socket.set_tcp_user_timeout(Some(UNCONFIRMED))
}
