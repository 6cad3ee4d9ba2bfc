//! The port on which a receiver waits for senders, and how a connection begins:
//!
//! ```text
//!   sender                                    receiver
//!          ◀── Challenge { nonce } ───────────  accept
//!          ─── Open { nonce, proof }, Hello ──▶ is it one of us? can its memory be mapped?
//!          ◀── Welcome { transport, proof } ──  or Refused
//!          ─── Offer, Finish, Alive … ────────▶
//! ```

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::auth::{End, Nonce, PortKey, Proof};
use crate::error::FabricError;
use crate::wire::{Challenge, Hello, Open, ToSender, Transport, VERSION, read_bounded, read_message, write_message};

/// Senders connected at once, unproven ones included; one more is turned away.
pub(crate) const MAX_SENDERS: usize = 256;
/// Two nonces' worth and a version: a peer that sends more before it has proved anything is no sender.
const MAX_OPEN_BYTES: usize = 256;

/// How long one end of a KV connection waits for the other.
#[derive(Clone, Copy, Debug)]
pub struct PortLimits {
    /// For everything before a sender has been welcomed.
    pub greeting: Duration,
    /// Of a connection on which nothing arrives, or into which nothing can be written. Senders with nothing to send show
    /// that they live four times as often.
    pub silence: Duration,
}

impl Default for PortLimits {
    fn default() -> Self {
        Self { greeting: Duration::from_secs(5), silence: Duration::from_secs(60) }
    }
}

impl PortLimits {
    pub(crate) fn keep_alive(&self) -> Duration {
        self.silence / 4
    }
}

/// Hands each connection to a thread of its own. A failing `accept` (no descriptors are left, most likely) is tried again
/// after a pause that doubles up to a second, and is a warning once until one succeeds.
pub(crate) fn accept_all(
    mut accept: impl FnMut() -> io::Result<TcpStream>,
    mut pause: impl FnMut(Duration),
    serve: impl Fn(TcpStream) + Send + Sync + 'static,
) {
    const FIRST_PAUSE: Duration = Duration::from_millis(10);
    const LONGEST_PAUSE: Duration = Duration::from_secs(1);
    let (serve, connected) = (Arc::new(serve), Arc::new(AtomicUsize::new(0)));
    let mut next_pause = FIRST_PAUSE;
    loop {
        match accept() {
            Ok(stream) => {
                next_pause = FIRST_PAUSE;
                spawn(stream, &serve, &connected);
            }
            // The listener itself has ended.
            Err(error) if error.kind() == io::ErrorKind::NotConnected => return,
            Err(error) => {
                if next_pause == FIRST_PAUSE {
                    tracing::warn!(%error, "cannot accept a KV sender; trying again");
                }
                pause(next_pause);
                next_pause = (next_pause * 2).min(LONGEST_PAUSE);
            }
        }
    }
}

/// A connection that finds no place, or no thread, is closed.
fn spawn(stream: TcpStream, serve: &Arc<impl Fn(TcpStream) + Send + Sync + 'static>, connected: &Arc<AtomicUsize>) {
    let place = Place(connected.clone());
    if connected.fetch_add(1, Ordering::AcqRel) >= MAX_SENDERS {
        return;
    }
    let serve = serve.clone();
    let spawned = std::thread::Builder::new().name("kv-receive".to_owned()).spawn(move || {
        let _place = place;
        serve(stream);
    });
    if let Err(error) = spawned {
        tracing::warn!(%error, "no thread for a KV sender");
    }
}

/// One of the connections that there may be.
struct Place(Arc<AtomicUsize>);

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// A sender that has proved itself.
pub(crate) struct Admitted {
    pub(crate) hello: Hello,
    /// For the welcome.
    pub(crate) proof: Proof,
}

/// The receiver's half of a greeting. `Ok(Err(reason))`: the sender is refused, and gets the reason.
pub(crate) fn admit(stream: &TcpStream, key: &PortKey, limits: &PortLimits) -> io::Result<Result<Admitted, String>> {
    let mut timed = Timed { stream, until: Instant::now() + limits.greeting };
    stream.set_write_timeout(Some(limits.silence))?;
    let ours = Nonce::random()?;
    write_message(&mut timed, &ToSender::Challenge(Challenge { nonce: ours }))?;
    let Some(Open { version, nonce, proof }) = read_bounded(&mut timed, MAX_OPEN_BYTES)? else {
        return Err(io::ErrorKind::UnexpectedEof.into());
    };
    if !key.accepts(&proof, End::Sender, &ours, &nonce) {
        return Ok(Err("wrong secret".to_owned()));
    }
    if version != VERSION {
        return Ok(Err(format!("this engine speaks KV protocol {VERSION}, the sender {version}")));
    }
    let Some(hello) = read_message(&mut timed)? else { return Err(io::ErrorKind::UnexpectedEof.into()) };
    stream.set_read_timeout(Some(limits.silence))?;
    Ok(Ok(Admitted { hello, proof: key.prove(End::Receiver, &ours, &nonce) }))
}

/// The sender's half. Its memory's addresses go to any peer that answers there, the KV itself only to holders of the key.
pub(crate) fn introduce(
    stream: &TcpStream,
    key: &PortKey,
    limits: &PortLimits,
    hello: &Hello,
) -> Result<Transport, FabricError> {
    let mut timed = Timed { stream, until: Instant::now() + limits.greeting };
    let failed = FabricError::Connect;
    stream.set_write_timeout(Some(limits.silence)).map_err(failed)?;
    let theirs = match read_message(&mut timed).map_err(failed)? {
        Some(ToSender::Challenge(Challenge { nonce })) => nonce,
        other => return Err(unexpected(other)),
    };
    let nonce = Nonce::random().map_err(failed)?;
    let open = Open { version: VERSION, nonce, proof: key.prove(End::Sender, &theirs, &nonce) };
    write_message(&mut timed, &open).map_err(failed)?;
    write_message(&mut timed, hello).map_err(failed)?;
    match read_message(&mut timed).map_err(failed)? {
        Some(ToSender::Welcome { transport, proof }) if key.accepts(&proof, End::Receiver, &theirs, &nonce) => {
            stream.set_read_timeout(None).map_err(failed)?;
            Ok(transport)
        }
        Some(ToSender::Welcome { .. }) => Err(FabricError::Refused("it does not know the secret".to_owned())),
        other => Err(unexpected(other)),
    }
}

fn unexpected(answer: Option<ToSender>) -> FabricError {
    match answer {
        Some(ToSender::Refused { reason }) => FabricError::Refused(reason),
        Some(other) => FabricError::Broken(format!("unexpected greeting {other:?}")),
        None => FabricError::Broken("it closed the connection".to_owned()),
    }
}

/// A stream for everything until some moment: bytes that trickle in do not prolong it.
struct Timed<'a> {
    stream: &'a TcpStream,
    until: Instant,
}

impl Read for Timed<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = self.until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        self.stream.set_read_timeout(Some(left))?;
        self.stream.read(buffer)
    }
}

impl Write for Timed<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stream.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

#[cfg(test)]
#[path = "port_tests.rs"]
mod tests;
