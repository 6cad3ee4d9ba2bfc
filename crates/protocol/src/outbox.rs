//! The writing half of a session, the same on both ends: whatever is queued goes out in as few writes as possible.

use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::net::tcp::OwnedWriteHalf;
use tokio::sync::mpsc;
use tokio::time::{MissedTickBehavior, interval, timeout};

use crate::error::{FrameError, SessionError};
use crate::message::Message;
use crate::{HEARTBEAT_INTERVAL, Heartbeat};

/// A peer that takes nothing for this long has stopped: what waits for it must not grow further.
const STALL_TIMEOUT: Duration = Duration::from_secs(30);
/// Queued frames are joined up to here before they are written.
const WRITE_BYTES: usize = 256 << 10;

/// Writes until the queue is closed (`Ok`) or the peer is gone. Heartbeats are made when they are due and can be written, so
/// they neither pile up nor wait behind the queue.
pub(crate) async fn write_queue<T>(
    mut queue: mpsc::UnboundedReceiver<T>,
    mut socket: OwnedWriteHalf,
    encode: impl Fn(T, &mut Vec<u8>) -> Result<(), FrameError>,
    heartbeat: Option<&(dyn Fn() -> Heartbeat + Sync)>,
) -> Result<(), SessionError> {
    let mut bytes = Vec::new();
    let mut beats = interval(HEARTBEAT_INTERVAL);
    beats.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            biased;
            _ = beats.tick(), if heartbeat.is_some() => {
                heartbeat.map_or(Ok(()), |heartbeat| heartbeat().encode(&mut bytes))?;
            }
            first = queue.recv() => match first {
                Some(first) => encode(first, &mut bytes)?,
                None => return Ok(()),
            },
        }
        while bytes.len() < WRITE_BYTES
            && let Ok(next) = queue.try_recv()
        {
            encode(next, &mut bytes)?;
        }
        timeout(STALL_TIMEOUT, socket.write_all(&bytes))
            .await
            .map_err(|_| SessionError::TimedOut(STALL_TIMEOUT.as_secs()))??;
        bytes.clear();
        bytes.shrink_to(2 * WRITE_BYTES);
    }
}
