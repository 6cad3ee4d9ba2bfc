//! A counter from which members take the next item of a phase.

use std::sync::atomic::{AtomicU64, Ordering};

/// Phase in the upper half, item in the lower: a member that is behind can never take an item of a phase it is not in.
#[repr(align(128))]
#[derive(Default)]
pub(super) struct ItemCounter(AtomicU64);

const PHASE: u64 = 1 << 32;

/// The outcome of an attempt to take an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    Item(usize),
    /// All items are taken, or the phase has not begun.
    Nothing,
    /// The phase has ended.
    Over,
}

impl ItemCounter {
    pub(super) fn reset(&self) {
        self.0.store(0, Ordering::Relaxed);
    }

    /// Another number whenever an item was taken or a phase has ended.
    pub(super) fn position(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    #[inline]
    pub(super) fn take(&self, phase: u32, items: usize) -> Next {
        let mut current = self.0.load(Ordering::Acquire);
        loop {
            let (now, item) = ((current / PHASE) as u32, (current % PHASE) as usize);
            if now > phase {
                return Next::Over;
            }
            if now < phase || item >= items {
                return Next::Nothing;
            }
            match self.0.compare_exchange_weak(current, current + 1, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return Next::Item(item),
                Err(newer) => current = newer,
            }
        }
    }

    /// Called for all counters by the member that finishes the last item of `phase`. If it is slow, a later phase without items
    /// of this counter may end before; the maximum keeps the counter from going back.
    pub(super) fn next_phase(&self, phase: u32) {
        self.0.fetch_max(u64::from(phase + 1) * PHASE, Ordering::AcqRel);
    }
}
