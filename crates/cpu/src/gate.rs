//! A counter that threads wait on: they spin briefly, then sleep.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Long enough for the next phase of a step, short enough not to starve another engine on the same cores.
const SPIN: Duration = Duration::from_micros(50);

#[derive(Default)]
pub(crate) struct Gate {
    openings: AtomicU32,
    sleepers: AtomicUsize,
    lock: Mutex<()>,
    wake: Condvar,
}

impl Gate {
    pub(crate) fn openings(&self) -> u32 {
        self.openings.load(Ordering::Acquire)
    }

    /// Lets everyone through who has seen one opening less.
    pub(crate) fn open(&self) {
        // Sequentially consistent with `sleepers`: either the opener sees a sleeper, or the sleeper sees the opening.
        self.openings.fetch_add(1, Ordering::SeqCst);
        if self.sleepers.load(Ordering::SeqCst) > 0 {
            drop(self.lock.lock().unwrap_or_else(PoisonError::into_inner));
            self.wake.notify_all();
        }
    }

    /// Returns when the gate has opened since `seen` was read, or `cancelled` is set by someone who opens it afterwards.
    pub(crate) fn wait_past(&self, seen: u32, cancelled: &AtomicBool) {
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
