//! What is to be sent to one receiver, between the step loop, which adds to it, and the connection's threads, which take from
//! it. Neither the step loop nor a thread that computes ever waits for a connection: a receiver that is slow is late, and that
//! is all.

use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use baton_core::PromptTimes;

use crate::cursor::{Chunk, Cursor, Next};
use crate::cursors::Cursors;
use crate::expected::lock;
use crate::layers::LayerCounter;
use crate::wire::ReservationKey;

/// How often the layer counter is read while the next piece is being computed: no thread that computes wakes another.
const LAYER_POLL: Duration = Duration::from_micros(500);

pub(crate) struct Link {
    state: Mutex<State>,
    /// Something may have to be sent, or the link is closed.
    changed: Condvar,
}

struct State {
    cursors: Cursors,
    /// Why nothing is sent any more.
    closed: Option<String>,
}

/// What the offering thread does next.
pub(crate) enum Task {
    Send(Next),
    /// There has been nothing to send for a while.
    ShowLife,
    End,
}

impl Link {
    pub(crate) fn new(layers: u32) -> Self {
        let state = State { cursors: Cursors::new(layers), closed: None };
        Self { state: Mutex::new(state), changed: Condvar::new() }
    }

    pub(crate) fn is_alive(&self) -> bool {
        lock(&self.state).closed.is_none()
    }

    /// A link that has ended meanwhile answers at once.
    pub(crate) fn begin(&self, reservation: ReservationKey, cursor: Cursor) {
        let mut state = lock(&self.state);
        let replaced = state.cursors.open(reservation, cursor);
        let (closed, orphans) = match state.closed.clone() {
            Some(reason) => (reason, state.cursors.drain()),
            None => (String::new(), Vec::new()),
        };
        drop(state);
        if let Some(on_outcome) = replaced {
            on_outcome(Err("another hand-off goes to the same reservation".to_owned()));
        }
        orphans.into_iter().for_each(|on_outcome| on_outcome(Err(closed.clone())));
    }

    pub(crate) fn forget(&self, reservation: ReservationKey, export: u64) {
        lock(&self.state).cursors.forget(reservation, export);
    }

    pub(crate) fn push(&self, reservation: ReservationKey, export: u64, chunk: Chunk) {
        lock(&self.state).cursors.push(reservation, export, chunk);
        self.changed.notify_one();
    }

    pub(crate) fn finish(&self, reservation: ReservationKey, export: u64, times: PromptTimes) {
        lock(&self.state).cursors.finish(reservation, export, times);
        self.changed.notify_one();
    }

    pub(crate) fn last_taken(&self, reservation: ReservationKey) -> Option<Instant> {
        lock(&self.state).cursors.last_taken(reservation)
    }

    /// The receiver has answered an offer. Whether the prompt was still being computed then.
    pub(crate) fn taken(&self, reservation: ReservationKey, damaged: bool, layers_done: u64, now: Instant) -> bool {
        lock(&self.state).cursors.taken(reservation, damaged, layers_done, now)
    }

    /// The receiver has answered the end of a hand-off.
    pub(crate) fn delivered(&self, reservation: ReservationKey, verified_pages: u32) {
        let delivered = lock(&self.state).cursors.delivered(reservation, verified_pages);
        if let Some((on_outcome, delivered)) = delivered {
            on_outcome(Ok(delivered));
        }
    }

    /// Nothing is sent from now on, and every hand-off fails. The first reason counts.
    pub(crate) fn close(&self, reason: &str) {
        let mut state = lock(&self.state);
        state.closed.get_or_insert_with(|| reason.to_owned());
        let orphans = state.cursors.drain();
        drop(state);
        self.changed.notify_one();
        orphans.into_iter().for_each(|on_outcome| on_outcome(Err(reason.to_owned())));
    }

    /// Waits until there is something to do, but no longer than `patience`.
    pub(crate) fn next(&self, layers_done: &LayerCounter, patience: Duration) -> Task {
        let deadline = Instant::now() + patience;
        let mut state = lock(&self.state);
        loop {
            if state.closed.is_some() {
                return Task::End;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            let wait = match state.cursors.next(layers_done.done()) {
                Next::Nothing => left,
                Next::Computing => left.min(LAYER_POLL),
                next => return Task::Send(next),
            };
            if left.is_zero() {
                return Task::ShowLife;
            }
            state = self.changed.wait_timeout(state, wait).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}
