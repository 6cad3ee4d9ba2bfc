//! The event log: a hash over all events, the last lines of it, and the first violation.

use std::collections::VecDeque;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::clock::{Clock, lock};
use crate::log_entry::LogEntry;
use crate::random::mix;

pub(crate) struct EventLog {
    clock: Arc<Clock>,
    state: Mutex<State>,
}

struct State {
    hash: RollingHash,
    last_entries: VecDeque<(Duration, LogEntry)>,
    keep: usize,
    violation: Option<Violation>,
}

/// A rule that a checker found broken.
#[derive(Clone, Debug)]
pub struct Violation {
    pub checker: Checker,
    pub message: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Checker {
    /// A client gets every token of each choice once, in order, with its log-probabilities and the right end, or an error
    /// that there is a reason for.
    Stream,
    /// An idle deployment holds nothing: no page, slot, reservation, fence, task, stream or load.
    Leak,
    /// A block counts as received only if its sender's fence was up when it was read.
    Fence,
    /// A block that counts holds the KV of its prompt, and so does whatever a step reads.
    Kv,
    /// A page is not written while it is offered under a fence that is up, nor by a step while a receiver waits for KV in it.
    Reuse,
    /// Every request ends in time.
    Deadline,
    /// Nothing waits for an event that cannot come; the deployment becomes idle.
    Progress,
    /// A plan keeps the backend's contract.
    Plan,
    /// A router gives up engines that hang, in time, and no others; those that live are used again.
    Hang,
    /// What routers have heard of prefix caches is what engines hold; updates that were lost are noticed, and made good.
    Cache,
}

impl EventLog {
    pub(crate) fn new(clock: Arc<Clock>, keep: usize) -> Self {
        let state = State { hash: RollingHash(0), last_entries: VecDeque::new(), keep, violation: None };
        Self { clock, state: Mutex::new(state) }
    }

    pub(crate) fn record(&self, entry: LogEntry) {
        let now = self.clock.now();
        let mut state = lock(&self.state);
        now.hash(&mut state.hash);
        entry.hash(&mut state.hash);
        if state.last_entries.len() == state.keep {
            state.last_entries.pop_front();
        }
        state.last_entries.push_back((now, entry));
    }

    /// Adds to the hash only: too frequent to be kept.
    pub(crate) fn count(&self, what: impl Hash) {
        what.hash(&mut lock(&self.state).hash);
    }

    /// Records a violation. Only the first is kept, as later ones may follow from it.
    pub(crate) fn report_violation(&self, checker: Checker, message: impl Into<String>) {
        let mut state = lock(&self.state);
        let message = message.into();
        state.violation.get_or_insert(Violation { checker, message });
    }

    pub(crate) fn violation(&self) -> Option<Violation> {
        lock(&self.state).violation.clone()
    }

    pub(crate) fn hash(&self) -> u64 {
        lock(&self.state).hash.0
    }

    pub(crate) fn last_entries(&self) -> Vec<String> {
        let line = |(at, entry): &(Duration, LogEntry)| format!("{:>12} us  {entry:?}", at.as_micros());
        lock(&self.state).last_entries.iter().map(line).collect()
    }
}

/// The same on every machine and in every build, which the standard hasher does not promise.
struct RollingHash(u64);

impl Hasher for RollingHash {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.0 = mix(self.0, u64::from_le_bytes(word));
        }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.checker, self.message)
    }
}
