//! How threads wait for each other: a gate at which they spin briefly and then sleep, and a count of the members inside a region.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Long enough for the next phase of a step, short enough not to starve another engine on the same cores.
const SPIN: Duration = Duration::from_micros(50);

/// A counter that threads wait on: they spin briefly, then sleep.
#[derive(Default)]
pub(super) struct Gate {
    openings: AtomicU32,
    sleepers: AtomicUsize,
    lock: Mutex<()>,
    wake: Condvar,
}

impl Gate {
    pub(super) fn openings(&self) -> u32 {
        self.openings.load(Ordering::Acquire)
    }

    /// Lets all threads through that wait for the next opening.
    pub(super) fn open(&self) {
        // Sequentially consistent with `sleepers`: either the opener sees a sleeper, or the sleeper sees the opening.
        self.openings.fetch_add(1, Ordering::SeqCst);
        if self.sleepers.load(Ordering::SeqCst) > 0 {
            drop(self.lock.lock().unwrap_or_else(PoisonError::into_inner));
            self.wake.notify_all();
        }
    }

    /// Returns when the gate has opened since `seen` was read, or when `cancelled` is set, which must be followed by an opening.
    pub(super) fn wait_past(&self, seen: u32, cancelled: &AtomicBool) {
        let through = || self.openings.load(Ordering::SeqCst) != seen || cancelled.load(Ordering::SeqCst);
        let mut deadline = None;
        loop {
            for _ in 0..64 {
                if through() {
                    return;
                }
                std::hint::spin_loop();
            }
            let now = Instant::now();
            if now >= *deadline.get_or_insert(now + SPIN) {
                break;
            }
        }
        self.sleepers.fetch_add(1, Ordering::SeqCst);
        let mut guard = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        while !through() {
            guard = self.wake.wait(guard).unwrap_or_else(PoisonError::into_inner);
        }
        drop(guard);
        self.sleepers.fetch_sub(1, Ordering::SeqCst);
    }
}

/// The number of members inside a region, and whether more may enter. Workers enter while it is open; its owner closes it and
/// waits until it is empty.
#[derive(Default)]
pub(super) struct Occupancy {
    inside: AtomicUsize,
    emptied: Gate,
}

const OPEN: usize = 1 << (usize::BITS - 1);

impl Occupancy {
    /// Called by the owner, when the job is set.
    pub(super) fn open(&self) {
        self.inside.store(OPEN, Ordering::Release);
    }

    /// `false` when the region is closed already.
    pub(super) fn enter(&self) -> bool {
        let enter = |inside: usize| (inside & OPEN != 0).then_some(inside + 1);
        self.inside.fetch_update(Ordering::AcqRel, Ordering::Relaxed, enter).is_ok()
    }

    pub(super) fn leave(&self) {
        if self.inside.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.emptied.open();
        }
    }

    /// Called by the owner: returns when no member is inside and none can enter.
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
