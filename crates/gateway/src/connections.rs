//! How many clients are connected, and who leaves when there is no room for another.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{Notify, watch};

use crate::warn_limit::WarnLimit;

/// Each connection takes a file descriptor, of which a process has few. When there are as many as there may be, the one that
/// has been idle for the longest is closed, so that clients who only keep connections open exclude no others.
pub(crate) struct Connections {
    most: usize,
    open: Mutex<Open>,
    /// A connection has ended or become idle.
    changed: Notify,
    /// All are to end.
    ending: watch::Sender<bool>,
    full: WarnLimit,
}

#[derive(Default)]
struct Open {
    clients: BTreeMap<u64, Client>,
    /// (since, client): those that no request keeps busy and that are not to close.
    idle: BTreeSet<(u64, u64)>,
    /// How many are to close.
    closing: usize,
    /// Numbers clients, and moments at which they become idle.
    next: u64,
}

struct Client {
    idle_since: u64,
    /// Requests that are being answered.
    busy: usize,
    is_closing: bool,
    close: Arc<Notify>,
}

/// A client's place, free again when this is dropped.
pub(crate) struct ConnectionSlot {
    connections: Arc<Connections>,
    client: u64,
    close: Arc<Notify>,
}

/// While a request is being answered its connection is not idle.
pub(crate) struct ActiveRequest(Arc<ConnectionSlot>);

impl Connections {
    pub(crate) fn new(most: usize) -> Arc<Self> {
        let (open, ending) = (Mutex::default(), watch::Sender::new(false));
        Arc::new(Self { most: most.max(1), open, changed: Notify::new(), ending, full: WarnLimit::default() })
    }

    /// A place for one more, as soon as there is one.
    pub(crate) async fn slot(self: &Arc<Self>) -> Arc<ConnectionSlot> {
        loop {
            let changed = self.changed.notified();
            if let Some(slot) = self.try_slot() {
                return Arc::new(slot);
            }
            if self.full.should_warn() {
                tracing::warn!(
                    "{} clients are connected, as many as there may be: idle connections are closed for new ones. \
                     `ulimit -n` sets how many files and connections a process may have",
                    self.most
                );
            }
            changed.await;
        }
    }

    /// Closes all after the answer they are busy with, and waits for that.
    pub(crate) async fn end(&self) {
        self.ending.send_replace(true);
        loop {
            let changed = self.changed.notified();
            if self.lock().clients.is_empty() {
                return;
            }
            changed.await;
        }
    }

    /// Requests one to close where there is no place.
    fn try_slot(self: &Arc<Self>) -> Option<ConnectionSlot> {
        let mut open = self.lock();
        if open.clients.len() < self.most {
            let (client, close) = (open.tick(), Arc::new(Notify::new()));
            open.clients
                .insert(client, Client { idle_since: client, busy: 0, is_closing: false, close: Arc::clone(&close) });
            open.idle.insert((client, client));
            return Some(ConnectionSlot { connections: Arc::clone(self), client, close });
        }
        if open.clients.len() - open.closing >= self.most {
            open.close_longest_idle();
        }
        None
    }

    fn lock(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Open {
    fn close_longest_idle(&mut self) {
        if let Some((_, client)) = self.idle.pop_first()
            && let Some(client) = self.clients.get_mut(&client)
        {
            client.is_closing = true;
            client.close.notify_one();
            self.closing += 1;
        }
    }

    fn tick(&mut self) -> u64 {
        self.next += 1;
        self.next
    }
}

impl ConnectionSlot {
    pub(crate) fn begin_request(self: &Arc<Self>) -> ActiveRequest {
        let open = &mut *self.connections.lock();
        if let Some(client) = open.clients.get_mut(&self.client) {
            client.busy += 1;
            open.idle.remove(&(client.idle_since, self.client));
        }
        ActiveRequest(Arc::clone(self))
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.connections.lock().clients.get(&self.client).is_none_or(|client| client.busy == 0)
    }

    /// Returns when another client needs the place, or when all connections are to end.
    pub(crate) async fn close_requested(&self) {
        let mut ending = self.connections.ending.subscribe();
        tokio::select! {
            biased;
            () = self.close.notified() => {}
            _ = ending.wait_for(|ending| *ending) => {}
        }
    }
}

impl Drop for ActiveRequest {
    fn drop(&mut self) {
        let connections = &self.0.connections;
        let open = &mut *connections.lock();
        let now = open.tick();
        if let Some(client) = open.clients.get_mut(&self.0.client) {
            client.busy -= 1;
            client.idle_since = now;
            if client.busy == 0 && !client.is_closing {
                open.idle.insert((now, self.0.client));
            }
        }
        connections.changed.notify_waiters();
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        let mut open = self.connections.lock();
        if let Some(client) = open.clients.remove(&self.client) {
            open.idle.remove(&(client.idle_since, self.client));
            open.closing -= usize::from(client.is_closing);
        }
        drop(open);
        self.connections.changed.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[tokio::test]
    async fn the_longest_idle_one_leaves_for_a_new_one() {
        let connections = Connections::new(3);
        let (first, second, third) = (connections.slot().await, connections.slot().await, connections.slot().await);
        // The order is that of becoming idle: second, third, first.
        drop(first.begin_request());
        let closing = |slot: &Arc<ConnectionSlot>| slot.close_requested().now_or_never().is_some();
        assert!(connections.slot().now_or_never().is_none());
        assert_eq!([&first, &second, &third].map(closing), [false, true, false]);
        assert!(connections.slot().now_or_never().is_none(), "one is closing already: no other has to");
        assert_eq!([&first, &third].map(closing), [false, false]);
        drop(second);
        let fourth = connections.slot().now_or_never().unwrap();

        // A connection with a request in progress stays.
        let busy = [&first, &third, &fourth].map(ConnectionSlot::begin_request);
        let mut fifth = Box::pin(connections.slot());
        assert!(fifth.as_mut().now_or_never().is_none());
        assert_eq!([&first, &third, &fourth].map(closing), [false; 3]);
        drop(busy);
        assert!(fifth.as_mut().now_or_never().is_none());
        assert_eq!([&first, &third, &fourth].map(closing), [true, false, false]);
        drop(first);
        assert!(fifth.now_or_never().is_some());
    }

    #[tokio::test]
    async fn all_are_closed_at_the_end() {
        let connections = Connections::new(3);
        let slots = [connections.slot().await, connections.slot().await];
        let mut ended = Box::pin(connections.end());
        assert!(ended.as_mut().now_or_never().is_none());
        assert!(slots[1].close_requested().now_or_never().is_some());
        drop(slots);
        ended.now_or_never().unwrap();
    }
}
