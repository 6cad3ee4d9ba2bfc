//! What one engine's prefix cache holds, by the events of its session. Numbers that are left out are a gap: the index stays as
//! it was until the snapshot that repairs it begins.
//!
//! ```text
//!   events   0 ── Reset, Stored … ── 9   [lost]   12 ──────── 14   20 ── Reset, Stored … ──
//!   index    │ as they arrive            │ a gap: a snapshot  │ │ from here on as they arrive
//!                                        │ is requested       │
//! ```

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use baton_core::{BlockHash, CacheEvent, CacheUpdate};
use baton_protocol::{CacheFollower, Engine};

use crate::counters::Counters;

/// Of one session: a new one begins with an empty index.
pub struct PrefixIndex {
    /// As many as the engine has pages. Eight bytes each, and the table around them.
    max_blocks: usize,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    held: HashSet<BlockHash>,
    /// The number of the event that comes next.
    next: u64,
    continuity: Continuity,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Continuity {
    /// Until a [`CacheEvent::Reset`] arrives, which every snapshot begins with.
    #[default]
    AwaitsSnapshot,
    Complete,
}

/// These events were lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Gap {
    pub(crate) expected: u64,
    pub(crate) got: u64,
}

impl PrefixIndex {
    pub(crate) fn new(max_blocks: usize) -> Self {
        Self { max_blocks, state: Mutex::default() }
    }

    /// How many blocks the engine holds.
    pub fn blocks(&self) -> usize {
        self.lock().held.len()
    }

    pub fn holds(&self, block: BlockHash) -> bool {
        self.lock().held.contains(&block)
    }

    /// How many of these, from the first on, the engine holds. A cache that holds a block holds all that stand before it, so
    /// a few of them are looked up.
    pub fn matching(&self, chain: &[BlockHash]) -> usize {
        let state = self.lock();
        chain.partition_point(|block| state.held.contains(block))
    }

    pub(crate) fn apply(&self, update: &CacheUpdate) -> Result<(), Gap> {
        let mut state = self.lock();
        let expected = std::mem::replace(&mut state.next, update.next());
        let reset = update.events.iter().rposition(|event| *event == CacheEvent::Reset);
        if reset.is_none() && update.first != expected {
            state.continuity = Continuity::AwaitsSnapshot;
            return Err(Gap { expected, got: update.first });
        }
        if reset.is_some() {
            state.continuity = Continuity::Complete;
        }
        if state.continuity == Continuity::Complete {
            for event in &update.events[reset.unwrap_or(0)..] {
                state.apply(event, self.max_blocks);
            }
        }
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn apply(&mut self, event: &CacheEvent, max_blocks: usize) {
        match event {
            CacheEvent::Stored { blocks, .. } => {
                let room = max_blocks.saturating_sub(self.held.len());
                self.held.extend(blocks.iter().take(room));
            }
            CacheEvent::Removed { blocks } => {
                for block in blocks {
                    self.held.remove(block);
                }
            }
            CacheEvent::Reset => self.held.clear(),
        }
    }
}

/// Keeps an index up to date for as long as the session lasts.
pub(crate) struct IndexFollower {
    index: Arc<PrefixIndex>,
    name: String,
    /// The session holds its follower.
    engine: Weak<dyn Engine>,
    counters: Arc<Counters>,
}

/// The index of what the engine holds. It stays empty when the engine has no prefix cache, or reports nothing of it.
pub(crate) fn follow(name: &str, engine: &Arc<dyn Engine>, counters: &Arc<Counters>) -> Arc<PrefixIndex> {
    let index = Arc::new(PrefixIndex::new(engine.info().pages_total as usize));
    if engine.info().prefix_cache {
        let follower = IndexFollower {
            index: Arc::clone(&index),
            name: name.to_owned(),
            engine: Arc::downgrade(engine),
            counters: Arc::clone(counters),
        };
        engine.follow_cache(Arc::new(follower));
    }
    index
}

impl CacheFollower for IndexFollower {
    fn cache_changed(self: Arc<Self>, update: CacheUpdate) {
        let Err(Gap { expected, got }) = self.index.apply(&update) else { return };
        tracing::warn!(engine = self.name, expected, got, "cache events were lost: a snapshot is requested");
        self.counters.cache_event_gaps.add();
        if let Some(engine) = self.engine.upgrade() {
            engine.follow_cache(self);
        }
    }
}

#[cfg(test)]
#[path = "prefix_index_tests.rs"]
mod tests;
