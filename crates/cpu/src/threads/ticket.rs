//! Which item of which phase is next.

use std::sync::atomic::{AtomicU64, Ordering};

/// Phase in the upper half, item in the lower: a member that is behind can never take an item of a phase it is not in.
#[repr(align(128))]
#[derive(Default)]
pub(super) struct Ticket(AtomicU64);

const PHASE: u64 = 1 << 32;

/// What there is to do in a phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    Item(usize),
    /// All items are taken, or the phase has not begun.
    Nothing,
    /// The phase has ended.
    Over,
}

impl Ticket {
    pub(super) fn reset(&self) {
        self.0.store(0, Ordering::Relaxed);
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

    /// By whoever finishes the last item of `phase`. One that is slow to tell all tickets may be overtaken by the end of a
    /// later phase that did not need this one: it must not take the ticket back.
    pub(super) fn next_phase(&self, phase: u32) {
        self.0.fetch_max(u64::from(phase + 1) * PHASE, Ordering::AcqRel);
    }
}
