//! Virtual time: it moves only from one thing that is due to the next.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use crate::event::Event;

#[derive(Default)]
pub(crate) struct Clock {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    now: Duration,
    next: u64,
    due: BTreeMap<Key, Due>,
}

/// Time, then insertion order: of two entries due at the same time the older comes first.
type Key = (Duration, u64);

pub(crate) enum Due {
    Wake(Waker),
    Event(Event),
}

impl Clock {
    pub(crate) fn now(&self) -> Duration {
        self.lock().now
    }

    pub(crate) fn after(&self, delay: Duration, event: Event) {
        let mut state = self.lock();
        let at = state.now + delay;
        state.insert(at, Due::Event(event));
    }

    pub(crate) fn at(&self, at: Duration, event: Event) {
        let mut state = self.lock();
        let at = at.max(state.now);
        state.insert(at, Due::Event(event));
    }

    /// Moves time to the next due entry and returns it.
    pub(crate) fn advance(&self) -> Option<Due> {
        let mut state = self.lock();
        let ((at, _), due) = state.due.pop_first()?;
        state.now = at;
        Some(due)
    }

    pub(crate) fn sleep(self: &Arc<Self>, duration: Duration) -> Sleep {
        Sleep { clock: Arc::clone(self), at: self.now() + duration, key: None }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }
}

impl State {
    fn insert(&mut self, at: Duration, due: Due) -> Key {
        self.next += 1;
        let key = (at, self.next);
        self.due.insert(key, due);
        key
    }
}

pub(crate) struct Sleep {
    clock: Arc<Clock>,
    at: Duration,
    key: Option<Key>,
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let clock = Arc::clone(&self.clock);
        let mut state = clock.lock();
        if state.now >= self.at {
            return Poll::Ready(());
        }
        let entry = self.key.and_then(|key| state.due.get(&key));
        if let Some(Due::Wake(waker)) = entry
            && waker.will_wake(context.waker())
        {
            return Poll::Pending;
        }
        let replaced = self.key.take().and_then(|key| state.due.remove(&key));
        self.key = Some(state.insert(self.at, Due::Wake(context.waker().clone())));
        drop(state);
        drop(replaced);
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        let removed = self.key.and_then(|key| self.clock.lock().due.remove(&key));
        drop(removed);
    }
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
