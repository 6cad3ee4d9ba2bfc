//! Which item of which phase is next.

use std::sync::atomic::{AtomicU64, Ordering};

/// Phase in the upper half, item in the lower: a member that is behind can never take an item of a phase it is not in.
#[repr(align(128))]
#[derive(Default)]
pub(super) struct Ticket(AtomicU64);

const PHASE: u64 = 1 << 32;

impl Ticket {
    pub(super) fn reset(&self) {
        self.0.store(0, Ordering::Relaxed);
    }

    /// The next item of `phase`: `None` when the phase is over, `Some(None)` when all its items are taken.
    #[inline]
    pub(super) fn take(&self, phase: u32, items: usize) -> Option<Option<usize>> {
        let mut current = self.0.load(Ordering::Acquire);
        loop {
            let item = (current % PHASE) as usize;
            if (current / PHASE) as u32 != phase {
                return None;
            }
            if item >= items {
                return Some(None);
            }
            match self.0.compare_exchange_weak(current, current + 1, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return Some(Some(item)),
                Err(newer) => current = newer,
            }
        }
    }

    /// By whoever finishes the last item of `phase`.
    pub(super) fn next_phase(&self, phase: u32) {
        self.0.store(u64::from(phase + 1) * PHASE, Ordering::Release);
    }
}
