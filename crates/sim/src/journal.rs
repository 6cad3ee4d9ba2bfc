//! What happened, as a hash of everything and a memory of the last part; and the first thing that should not have happened.

use std::collections::VecDeque;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::clock::{Clock, lock};
use crate::happening::Happening;
use crate::random::mix;

pub(crate) struct Journal {
    clock: Arc<Clock>,
    state: Mutex<State>,
}

struct State {
    hash: RollingHash,
    tail: VecDeque<(Duration, Happening)>,
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
    /// When nothing is to be done, nothing is held: no page, slot, reservation, fence, task, stream or load.
    Leak,
    /// A block counts as received only if its sender's fence was up when it was read.
    Fence,
    /// A block that counts holds the KV of its prompt, and so does whatever a step reads.
    Kv,
    /// Nobody writes a page while it is offered under a fence that is up.
    Reuse,
    /// Every request ends in time.
    Deadline,
    /// Whatever waits, waits for something; everything comes to rest.
    Progress,
    /// A plan keeps the backend's contract.
    Plan,
}

impl Journal {
    pub(crate) fn new(clock: Arc<Clock>, keep: usize) -> Self {
        let state = State { hash: RollingHash(0), tail: VecDeque::new(), keep, violation: None };
        Self { clock, state: Mutex::new(state) }
    }

    pub(crate) fn note(&self, happening: Happening) {
        let now = self.clock.now();
        let mut state = lock(&self.state);
        now.hash(&mut state.hash);
        happening.hash(&mut state.hash);
        if state.tail.len() == state.keep {
            state.tail.pop_front();
        }
        state.tail.push_back((now, happening));
    }

    /// Part of the hash, but too frequent to be kept.
    pub(crate) fn count(&self, what: impl Hash) {
        what.hash(&mut lock(&self.state).hash);
    }

    /// The first one counts: what follows may be its consequence.
    pub(crate) fn blame(&self, checker: Checker, message: impl Into<String>) {
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

    pub(crate) fn tail(&self) -> Vec<String> {
        let line = |(at, happening): &(Duration, Happening)| format!("{:>12} us  {happening:?}", at.as_micros());
        lock(&self.state).tail.iter().map(line).collect()
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
