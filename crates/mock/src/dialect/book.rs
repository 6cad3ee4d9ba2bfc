//! A map that forgets its oldest entries.

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// What is remembered, used or not. The oldest make way.
const MOST_REMEMBERED: usize = 1 << 16;

pub(super) struct Book<K, V> {
    pub(super) entries: HashMap<K, V>,
    order: VecDeque<K>,
}

impl<K, V> Default for Book<K, V> {
    fn default() -> Self {
        Self { entries: HashMap::new(), order: VecDeque::new() }
    }
}

impl<K: Hash + Eq + Clone, V> Book<K, V> {
    /// Of a key that is not there yet.
    pub(super) fn insert(&mut self, key: K, value: V) {
        if self.order.len() == MOST_REMEMBERED
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
    fn the_oldest_are_forgotten() {
        let mut book = Book::default();
        (0..MOST_REMEMBERED + 2).for_each(|key| book.insert(key, ()));
        assert_eq!((book.entries.len(), book.order.len()), (MOST_REMEMBERED, MOST_REMEMBERED));
        assert!(!book.entries.contains_key(&1) && book.entries.contains_key(&2));
    }
}
