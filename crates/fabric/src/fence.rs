//! Generations that show whether offered pages still hold what was offered.
//!
//! ```text
//!   sender:    open → g   offer(g) … offer(g)   close → g+1   pages are reused
//!   receiver:             copy, then read the generation again: still g → the copy is good, else it is dropped
//! ```
//! The table is shared memory, so a receiver sees a bump without a message, even from a sender that does not run.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::sync::{Arc, Mutex, PoisonError};

use serde::{Deserialize, Serialize};

use crate::region::{MemfdAddress, Region, RemoteRegion};

const SLOTS: usize = 4096;

/// What an offer states about its pages: they are good while `slot` shows `generation`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct FenceMark {
    pub(crate) slot: u32,
    pub(crate) generation: u64,
}

/// All fences of a sending process.
pub(crate) struct FenceTable {
    region: Region,
    free: Mutex<Vec<u32>>,
}

impl FenceTable {
    pub(crate) fn new() -> io::Result<Arc<Self>> {
        let region = Region::new(SLOTS * 8)?;
        Ok(Arc::new(Self { region, free: Mutex::new((0..SLOTS as u32).rev().collect()) }))
    }

    pub(crate) fn address(&self) -> MemfdAddress {
        self.region.address()
    }

    /// `None` when all slots are taken: too many hand-offs at once.
    pub(crate) fn open(self: &Arc<Self>) -> Option<Fence> {
        let slot = self.free.lock().unwrap_or_else(PoisonError::into_inner).pop()?;
        let generation = self.cell(slot).load(Ordering::Acquire);
        Some(Fence { table: self.clone(), mark: FenceMark { slot, generation } })
    }

    fn cell(&self, slot: u32) -> &AtomicU64 {
        // SAFETY: slot < SLOTS, the region holds SLOTS aligned u64s and lives as long as `self`.
        unsafe { self.region.base().cast::<AtomicU64>().add(slot as usize).as_ref() }
    }
}

/// Pages of one hand-off may be offered while this lives. Drop it before they are reused.
pub(crate) struct Fence {
    table: Arc<FenceTable>,
    mark: FenceMark,
}

impl Fence {
    pub(crate) fn mark(&self) -> FenceMark {
        self.mark
    }
}

impl Drop for Fence {
    fn drop(&mut self) {
        self.table.cell(self.mark.slot).fetch_add(1, Ordering::AcqRel);
        self.table.free.lock().unwrap_or_else(PoisonError::into_inner).push(self.mark.slot);
    }
}

/// Whether what was read just now was read while `mark` held.
pub(crate) trait FenceView: Send {
    fn holds(&self, mark: FenceMark) -> bool;
}

impl FenceView for Arc<FenceTable> {
    fn holds(&self, mark: FenceMark) -> bool {
        fence(Ordering::Acquire);
        (mark.slot as usize) < SLOTS && self.cell(mark.slot).load(Ordering::Acquire) == mark.generation
    }
}

/// The table of another process.
pub(crate) struct RemoteFences(RemoteRegion);

impl RemoteFences {
    pub(crate) fn open(address: &MemfdAddress) -> io::Result<Self> {
        Ok(Self(RemoteRegion::open(address)?))
    }
}

impl FenceView for RemoteFences {
    fn holds(&self, mark: FenceMark) -> bool {
        // The copy's reads come before the check.
        fence(Ordering::Acquire);
        self.0.at(mark.slot as usize * 8, 8).is_some_and(|cell| {
            // SAFETY: inside the mapping, 8-aligned, and only ever accessed as an atomic.
            unsafe { cell.cast::<AtomicU64>().as_ref() }.load(Ordering::Acquire) == mark.generation
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn closing_is_seen_through_another_mapping() {
        let table = FenceTable::new().unwrap();
        let remote = RemoteFences::open(&table.address()).unwrap();
        let first = table.open().unwrap();
        let second = table.open().unwrap();
        let (a, b) = (first.mark(), second.mark());
        assert!(remote.holds(a) && remote.holds(b) && table.holds(a));
        drop(first);
        assert!(!remote.holds(a) && remote.holds(b));
        let again = table.open().unwrap();
        assert_eq!(again.mark().slot, a.slot);
        assert!(!remote.holds(a) && remote.holds(again.mark()), "an old mark does not come back to life");
        assert!(!remote.holds(FenceMark { slot: SLOTS as u32, generation: 0 }));
    }

    #[test]
    fn slots_run_out_and_come_back() {
        let table = FenceTable::new().unwrap();
        let mut held: Vec<_> = (0..SLOTS).map(|_| table.open().unwrap()).collect();
        assert!(table.open().is_none());
        held.pop();
        assert!(table.open().is_some());
    }
}
