//! What a receiver expects, and what of it has arrived and was verified.

use std::collections::BTreeMap;
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use baton_core::{PAGE_TOKENS, PageId};

use crate::wire::ReservationKey;

/// How long a block may take once its first byte is there, before whoever wants the pages back cuts the connection.
const BLOCK_PATIENCE_MS: u32 = 50;

/// Pages set aside for one hand-off.
///
/// ```text
///   page of the sequence   0 … first_index … first_index + pages.len()
///                          | cached here   | expected from the sender |
/// ```
pub(crate) struct Inbox {
    pub(crate) first_index: u32,
    pub(crate) pages: Vec<PageId>,
    layers: u32,
    /// `[page][layer]`
    landed: Vec<bool>,
    landed_layers: Vec<u32>,
}

impl Inbox {
    pub(crate) fn new(first_index: u32, pages: Vec<PageId>, layers: u32) -> Self {
        let count = pages.len();
        Self { first_index, pages, layers, landed: vec![false; count * layers as usize], landed_layers: vec![0; count] }
    }

    /// Where page `index` of the sequence goes; `None` for pages that are cached here already or lie past the end.
    pub(crate) fn slot(&self, index: u32) -> Option<usize> {
        let slot = index.checked_sub(self.first_index)? as usize;
        (slot < self.pages.len()).then_some(slot)
    }

    pub(crate) fn mark(&mut self, slot: usize, layer: u32) {
        let cell = &mut self.landed[slot * self.layers as usize + layer as usize];
        if !std::mem::replace(cell, true) {
            self.landed_layers[slot] += 1;
        }
    }

    /// A page whose bytes turned out wrong after an earlier good copy must not count any more.
    pub(crate) fn unmark(&mut self, slot: usize, layer: u32) {
        let cell = &mut self.landed[slot * self.layers as usize + layer as usize];
        if std::mem::replace(cell, false) {
            self.landed_layers[slot] -= 1;
        }
    }

    /// Pages from the first on of which every layer was verified.
    pub(crate) fn verified_pages(&self) -> u32 {
        self.landed_layers.iter().take_while(|layers| **layers == self.layers).count() as u32
    }
}

/// One expected hand-off and the connection that fills it.
pub(crate) struct Slot {
    /// `None` once revoked.
    pub(crate) inbox: Mutex<Option<Inbox>>,
    /// Apart from the inbox, which is locked while a block arrives: that may be forever.
    last_arrival: Mutex<Instant>,
    filler: Mutex<Option<Arc<TcpStream>>>,
    /// Set before the inbox is taken: whoever fills it must not lock it once more.
    closing: AtomicBool,
}

impl Slot {
    pub(crate) fn filled_by(&self, connection: &Arc<TcpStream>) {
        *lock(&self.filler) = Some(connection.clone());
    }

    pub(crate) fn is_open(&self) -> bool {
        !self.closing.load(Ordering::Acquire)
    }

    pub(crate) fn note_arrival(&self, now: Instant) {
        *lock(&self.last_arrival) = now;
    }

    /// Waits for a copy in progress. A sender that has stopped in the middle of a block loses its connection: the pages must
    /// not wait for it.
    fn close(&self) -> Option<Inbox> {
        self.closing.store(true, Ordering::Release);
        for _ in 0..BLOCK_PATIENCE_MS {
            match self.inbox.try_lock() {
                Ok(mut inbox) => return inbox.take(),
                Err(TryLockError::Poisoned(poisoned)) => return poisoned.into_inner().take(),
                Err(TryLockError::WouldBlock) => std::thread::sleep(Duration::from_millis(1)),
            }
        }
        if let Some(connection) = lock(&self.filler).take() {
            let _ = connection.shutdown(Shutdown::Both);
        }
        lock(&self.inbox).take()
    }
}

/// All hand-offs a receiver waits for. Taking one out is final: once `revoke` returns, no thread writes to its pages.
#[derive(Default)]
pub(crate) struct Inboxes {
    open: Mutex<BTreeMap<ReservationKey, Arc<Slot>>>,
}

impl Inboxes {
    pub(crate) fn insert(&self, key: ReservationKey, inbox: Inbox, now: Instant) {
        let slot = Slot {
            inbox: Mutex::new(Some(inbox)),
            last_arrival: Mutex::new(now),
            filler: Mutex::default(),
            closing: AtomicBool::new(false),
        };
        lock(&self.open).insert(key, Arc::new(slot));
    }

    pub(crate) fn get(&self, key: ReservationKey) -> Option<Arc<Slot>> {
        lock(&self.open).get(&key).cloned()
    }

    /// Returns what was verified.
    pub(crate) fn revoke(&self, key: ReservationKey) -> u32 {
        let slot = lock(&self.open).remove(&key);
        slot.and_then(|slot| slot.close()).map_or(0, |inbox| inbox.verified_pages())
    }

    /// For the connection that fills it: no block is being copied then.
    pub(crate) fn verified(&self, key: ReservationKey) -> u32 {
        let Some(slot) = self.get(key) else { return 0 };
        let inbox = lock(&slot.inbox);
        inbox.as_ref().map_or(0, Inbox::verified_pages)
    }

    /// `None` for reservations that are gone.
    pub(crate) fn last_arrival(&self, key: ReservationKey) -> Option<Instant> {
        self.get(key).map(|slot| *lock(&slot.last_arrival))
    }
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Tokens that `pages` verified pages from `begin` on make valid, of a hand-off that ends at `end`.
pub(crate) fn verified_tokens(begin: u32, end: u32, pages: u32) -> u32 {
    (begin + pages * PAGE_TOKENS as u32).min(end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_pages_from_the_first_count() {
        let mut inbox = Inbox::new(2, vec![PageId(7), PageId(8), PageId(9)], 2);
        assert_eq!((inbox.slot(1), inbox.slot(2), inbox.slot(4), inbox.slot(5)), (None, Some(0), Some(2), None));
        for (slot, layer, verified) in [(1, 0, 0), (1, 1, 0), (0, 0, 0), (0, 0, 0), (0, 1, 2), (2, 1, 2), (2, 0, 3)] {
            inbox.mark(slot, layer);
            assert_eq!(inbox.verified_pages(), verified, "after page {slot} layer {layer}");
        }
        inbox.unmark(1, 0);
        assert_eq!(inbox.verified_pages(), 1);
    }

    #[test]
    fn tokens_never_pass_the_end() {
        for (begin, end, pages, tokens) in [(0, 40, 1, 32), (0, 40, 2, 40), (64, 100, 0, 64), (64, 96, 1, 96)] {
            assert_eq!(verified_tokens(begin, end, pages), tokens);
        }
    }
}
