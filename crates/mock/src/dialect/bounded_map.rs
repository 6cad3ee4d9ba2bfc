//! A map of bounded size that drops its oldest entries.

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Entries are never removed by use, only by newer ones.
const MAX_ENTRIES: usize = 1 << 16;

pub(super) struct BoundedMap<K, V> {
    pub(super) entries: HashMap<K, V>,
    order: VecDeque<K>,
}

impl<K, V> Default for BoundedMap<K, V> {
    fn default() -> Self {
        Self { entries: HashMap::new(), order: VecDeque::new() }
    }
}

impl<K: Hash + Eq + Clone, V> BoundedMap<K, V> {
    /// The key must be new.
    pub(super) fn insert(&mut self, key: K, value: V) {
        if self.order.len() == MAX_ENTRIES
            && let Some(oldest) = self.order.pop_front()
        {
            self.entries.remove(&oldest);
        }
        self.order.push_back(key.clone());
        self.entries.insert(key, value);
    }
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_entries_are_dropped() {
        let mut map = BoundedMap::default();
        (0..MAX_ENTRIES + 2).for_each(|key| map.insert(key, ()));
        assert_eq!((map.entries.len(), map.order.len()), (MAX_ENTRIES, MAX_ENTRIES));
        assert!(!map.entries.contains_key(&1) && map.entries.contains_key(&2));
    }
}
