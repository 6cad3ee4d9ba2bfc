//! How many runs are done, in one line of a terminal; nothing where there is none.

use std::io::{IsTerminal, Write, stderr};
use std::sync::atomic::{AtomicUsize, Ordering};

pub(crate) struct Progress {
    done: AtomicUsize,
    of: usize,
    shows: bool,
}

impl Progress {
    pub(crate) fn new(of: usize) -> Self {
        Self { done: AtomicUsize::new(0), of, shows: stderr().is_terminal() }
    }

    pub(crate) fn one_more(&self) {
        let done = self.done.fetch_add(1, Ordering::Relaxed) + 1;
        self.put(&format!("\r{done} of {} runs", self.of));
    }

    /// Leaves the terminal as it was.
    pub(crate) fn clear(&self) {
        self.put("\r\x1b[K");
    }

    /// A terminal that has gone away is no reason to stop.
    fn put(&self, text: &str) {
        if self.shows {
            let _ = stderr().write_all(text.as_bytes());
        }
    }
}
