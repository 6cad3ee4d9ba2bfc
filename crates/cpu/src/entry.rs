//! Who is inside a region: workers come in while it is open, and its owner goes on when it is closed and empty.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use super::gate::Gate;

/// Members inside, and whether more may come.
#[derive(Default)]
pub(super) struct Entry {
    inside: AtomicUsize,
    emptied: Gate,
}

const OPEN: usize = 1 << (usize::BITS - 1);

impl Entry {
    /// By the owner, when everything inside is ready.
    pub(super) fn open(&self) {
        self.inside.store(OPEN, Ordering::Release);
    }

    /// False when the region is over already.
    pub(super) fn enter(&self) -> bool {
        let enter = |inside: usize| (inside & OPEN != 0).then_some(inside + 1);
        self.inside.fetch_update(Ordering::AcqRel, Ordering::Relaxed, enter).is_ok()
    }

    pub(super) fn leave(&self) {
        if self.inside.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.emptied.open();
        }
    }

    /// By the owner: returns when nobody is inside, and nobody will be.
    pub(super) fn close_and_wait(&self) {
        let never = AtomicBool::new(false);
        let mut seen = self.emptied.openings();
        let mut inside = self.inside.fetch_and(!OPEN, Ordering::AcqRel) & !OPEN;
        while inside != 0 {
            self.emptied.wait_past(seen, &never);
            seen = self.emptied.openings();
            inside = self.inside.load(Ordering::Acquire);
        }
    }
}
