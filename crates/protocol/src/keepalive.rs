//! A host that has died or been cut off says nothing, not even that it is gone: the kernel is told to find out.

use std::io;
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use tokio::net::TcpStream;

/// When nothing was heard for this long the peer's kernel is asked, and again until it has not answered three times.
const SILENCE: Duration = Duration::from_secs(4);
const BETWEEN_QUESTIONS: Duration = Duration::from_secs(2);
const QUESTIONS: u32 = 3;
/// Longest that sent bytes may stay unconfirmed. A process that is merely slow or stopped does not matter: its kernel confirms.
const UNCONFIRMED: Duration = Duration::from_secs(10);

/// Either way the connection breaks within about ten seconds of its peer's end.
pub(crate) fn notice_death(stream: &TcpStream) -> io::Result<()> {
    let socket = SockRef::from(stream);
    let questions = TcpKeepalive::new().with_time(SILENCE).with_interval(BETWEEN_QUESTIONS).with_retries(QUESTIONS);
    socket.set_tcp_keepalive(&questions)?;
    socket.set_tcp_user_timeout(Some(UNCONFIRMED))
}
