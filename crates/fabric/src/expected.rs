//! All hand-offs that a receiver expects, who copies into their pages, and how their copying ends.

use std::collections::BTreeMap;
use std::io::{self, Read};
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use crate::expected_pages::ExpectedPages;
use crate::wire::ReservationKey;

/// A sender that is in the middle of a block, and sends no byte for this long while others want its pages, is cut off.
const STALL_PATIENCE: Duration = Duration::from_millis(500);

/// Between two looks at a block that is being copied.
const LOOK_INTERVAL: Duration = Duration::from_millis(1);

/// One expected hand-off and the connection that fills it.
pub(crate) struct ExpectedHandOff {
    /// `None` once revoked. Locked while a block is copied.
    pub(crate) pages: Mutex<Option<ExpectedPages>>,
    /// Not among the pages: those may be locked for long.
    last_arrival: Mutex<Instant>,
    /// The connection that locked the pages last, if cutting it ends the copy: if its bytes come that way.
    filler: Mutex<Option<Arc<TcpStream>>>,
    /// Bytes that it has brought, whatever they are worth.
    received_bytes: AtomicU64,
    /// Set before the pages are taken: no copy begins any more.
    closing: AtomicBool,
}

impl ExpectedHandOff {
    fn new(pages: ExpectedPages, now: Instant) -> Self {
        Self {
            pages: Mutex::new(Some(pages)),
            last_arrival: Mutex::new(now),
            filler: Mutex::default(),
            received_bytes: AtomicU64::new(0),
            closing: AtomicBool::new(false),
        }
    }

    pub(crate) fn note_arrival(&self, now: Instant) {
        *lock(&self.last_arrival) = now;
    }

    /// The pages, for a block whose bytes arrive on this connection; `None` once revoked. Another sender that has stopped in
    /// the middle of a block loses its connection.
    pub(crate) fn lock_for(
        &self,
        connection: Option<&Arc<TcpStream>>,
    ) -> Option<MutexGuard<'_, Option<ExpectedPages>>> {
        let mut stall = Stall::since(Instant::now());
        let pages = loop {
            if self.closing.load(Ordering::Acquire) {
                return None;
            }
            if let Some(pages) = self.try_lock() {
                break pages;
            }
            stall.cut_if_over(self);
            std::thread::sleep(LOOK_INTERVAL);
        };
        *lock(&self.filler) = connection.cloned();
        Some(pages)
    }

    pub(crate) fn received_bytes(&self) -> u64 {
        self.received_bytes.load(Ordering::Relaxed)
    }

    /// No copy begins any more. Returns the tokens that are verified, or `None` while a block is being copied.
    pub(crate) fn close(&self) -> Option<u32> {
        self.closing.store(true, Ordering::Release);
        let mut pages = self.try_lock()?;
        Some(pages.take().map_or(0, |pages| pages.verified_tokens()))
    }

    fn try_lock(&self) -> Option<MutexGuard<'_, Option<ExpectedPages>>> {
        match self.pages.try_lock() {
            Ok(pages) => Some(pages),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }
}

/// Bytes of a block on their way into the pages of a slot.
pub(crate) struct Arriving<'a> {
    pub(crate) input: &'a mut dyn Read,
    pub(crate) slot: Option<&'a ExpectedHandOff>,
}

impl Read for Arriving<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let bytes = self.input.read(buffer)?;
        self.slot.iter().for_each(|slot| {
            slot.received_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        });
        Ok(bytes)
    }
}

/// Watches a block that is being copied while another caller wants its pages.
pub(crate) struct Stall {
    since: Instant,
    received_bytes: Option<u64>,
}

impl Stall {
    pub(crate) fn since(now: Instant) -> Self {
        Self { since: now, received_bytes: None }
    }

    pub(crate) fn cut_if_over(&mut self, slot: &ExpectedHandOff) {
        let received = slot.received_bytes();
        if self.received_bytes.replace(received) != Some(received) {
            self.since = Instant::now();
        } else if self.since.elapsed() >= STALL_PATIENCE
            && let Some(connection) = lock(&slot.filler).take()
        {
            let _ = connection.shutdown(Shutdown::Both);
        }
    }
}

/// What remains of a hand-off that is not waited for any more.
pub(crate) enum Closed {
    /// Its pages are written no more; this many tokens are verified.
    Now(u32),
    /// A block is being copied into its pages.
    Copying(Arc<ExpectedHandOff>),
}

/// All hand-offs a receiver waits for.
#[derive(Default)]
pub(crate) struct ExpectedHandOffs {
    open: Mutex<BTreeMap<ReservationKey, Arc<ExpectedHandOff>>>,
}

impl ExpectedHandOffs {
    pub(crate) fn insert(&self, key: ReservationKey, pages: ExpectedPages, now: Instant) {
        lock(&self.open).insert(key, Arc::new(ExpectedHandOff::new(pages, now)));
    }

    pub(crate) fn get(&self, key: ReservationKey) -> Option<Arc<ExpectedHandOff>> {
        lock(&self.open).get(&key).cloned()
    }

    /// Does not wait.
    pub(crate) fn revoke(&self, key: ReservationKey) -> Closed {
        let Some(slot) = lock(&self.open).remove(&key) else { return Closed::Now(0) };
        slot.close().map_or(Closed::Copying(slot), Closed::Now)
    }

    /// `None` for reservations that are gone.
    pub(crate) fn last_arrival(&self, key: ReservationKey) -> Option<Instant> {
        self.get(key).map(|slot| *lock(&slot.last_arrival))
    }
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
