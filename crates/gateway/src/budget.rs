//! The memory that request bodies may take, over all requests together.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::timeout;

use crate::error::ApiError;

/// How long a request waits for memory that others have. Parsing takes well under a second, so that most waits succeed;
/// a client that is refused has not waited long for it.
const PATIENCE: Duration = Duration::from_secs(2);
/// The last eighth is kept for shares of no more than this, so that large bodies never keep ordinary requests out.
const SMALL_BYTES: usize = 512 << 10;

/// ```text
///   0 ── large ones arriving ── 3/8 ── large ones being parsed ── 7/8 ── small ones ── 8/8
/// ```
///
/// A body that has arrived can be parsed, because those that still arrive leave half of the memory to it.
pub(crate) struct BodyBudget {
    bytes: usize,
    used: Mutex<usize>,
    freed: Notify,
}

/// What one body takes. Dropping it gives that back.
pub(crate) struct Share {
    budget: Arc<BodyBudget>,
    bytes: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    Reading,
    Parsing,
}

impl BodyBudget {
    pub(crate) fn new(bytes: usize) -> Arc<Self> {
        Arc::new(Self { bytes, used: Mutex::new(0), freed: Notify::new() })
    }

    /// The most that one body may take.
    pub(crate) fn largest_share(&self) -> usize {
        self.bytes / 2
    }

    pub(crate) fn share(self: &Arc<Self>) -> Share {
        Share { budget: Arc::clone(self), bytes: 0 }
    }

    /// Of the whole budget, how much may be used after a share has become this large.
    fn limit(&self, share_bytes: usize, phase: Phase) -> usize {
        match phase {
            _ if share_bytes <= SMALL_BYTES => self.bytes,
            Phase::Reading => self.bytes / 8 * 3,
            Phase::Parsing => self.bytes / 8 * 7,
        }
    }

    fn used(&self) -> MutexGuard<'_, usize> {
        self.used.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Share {
    /// Grows to `bytes`, as soon as there is room for that.
    pub(crate) async fn grow_to(&mut self, bytes: usize, phase: Phase) -> Result<(), ApiError> {
        if self.try_grow_to(bytes, phase) {
            return Ok(());
        }
        let budget = Arc::clone(&self.budget);
        let grown = async {
            loop {
                let freed = budget.freed.notified();
                if self.try_grow_to(bytes, phase) {
                    return;
                }
                freed.await;
            }
        };
        timeout(PATIENCE, grown).await.map_err(|_| {
            let message = format!(
                "other requests take up the {} MiB that request bodies may have; try again shortly",
                budget.bytes >> 20
            );
            ApiError::busy(message, 1000)
        })
    }

    /// Grows to what has to be held on behalf of the field `param`, beside the body itself.
    pub(crate) async fn hold(&mut self, bytes: usize, param: &str) -> Result<(), ApiError> {
        let most = self.budget.largest_share();
        if bytes > most {
            let message = format!("{param}: this takes more memory than a request may have, which is {most} bytes");
            return Err(ApiError::invalid(param, message));
        }
        self.grow_to(bytes, Phase::Parsing).await
    }

    fn try_grow_to(&mut self, bytes: usize, phase: Phase) -> bool {
        let mut used = self.budget.used();
        let more = bytes.saturating_sub(self.bytes);
        let fits = *used + more <= self.budget.limit(bytes, phase);
        if fits {
            *used += more;
            self.bytes += more;
        }
        fits
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        *self.budget.used() -= self.bytes;
        self.budget.freed.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::Phase::{Parsing, Reading};
    use super::*;

    const MIB: usize = 1 << 20;

    #[tokio::test(start_paused = true)]
    async fn small_bodies_get_through_beside_large_ones() {
        let budget = BodyBudget::new(64 * MIB);
        let (mut large, mut larger, mut small) = (budget.share(), budget.share(), budget.share());
        large.grow_to(24 * MIB, Reading).await.unwrap();
        assert_eq!(larger.grow_to(MIB, Reading).await.unwrap_err().status, 429, "what arrives leaves room for parsing");
        large.grow_to(32 * MIB, Parsing).await.unwrap();
        larger.grow_to(24 * MIB, Parsing).await.unwrap();
        let error = budget.share().grow_to(MIB, Parsing).await.unwrap_err();
        assert_eq!((error.status.as_u16(), error.retry_after_ms), (429, Some(1000)));
        assert!(error.message.contains("64 MiB"), "{error:?}");
        small.grow_to(SMALL_BYTES, Reading).await.unwrap();
        drop((large, larger, small));
        assert_eq!(*budget.used(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_waiting_body_gets_what_is_given_back() {
        let budget = BodyBudget::new(64 * MIB);
        let (mut first, mut second) = (budget.share(), budget.share());
        first.grow_to(32 * MIB, Parsing).await.unwrap();
        let waiting = second.grow_to(32 * MIB, Parsing);
        let freeing = async {
            tokio::time::sleep(PATIENCE / 2).await;
            drop(first);
        };
        let (grown, ()) = tokio::join!(waiting, freeing);
        grown.unwrap();
        assert_eq!(*budget.used(), 32 * MIB);
    }
}
