//! What an engine's prefix cache holds, as others know it: pages by hash, and numbered events.
//!
//! ```text
//!   tokens   0 ........ 32 ........ 64 ........ 96
//!   hash     H(-, t0..31) ─▶ H(h0, t32..63) ─▶ H(h1, t64..95)
//! ```

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{AdapterId, PAGE_TOKENS, TokenId};

/// Blocks in one event, so that messages can be cut between events.
const EVENT_BLOCKS: usize = 512;
/// Blocks in a [`CacheLog`].
const LOG_BLOCKS: usize = 1 << 16;

/// Names a page of tokens together with all that stand before it and the adapter: the first 8 bytes of BLAKE3 over the hash
/// of the page before, the adapter and the tokens. Two pages with equal hashes hold equal KV, so far as their engines agree.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct BlockHash([u8; 8]);

impl BlockHash {
    /// `parent`: the page before; `None` at the beginning.
    pub fn of(parent: Option<Self>, adapter: Option<AdapterId>, page: &[TokenId; PAGE_TOKENS]) -> Self {
        let mut bytes = [0; 18 + 4 * PAGE_TOKENS];
        bytes[0] = parent.is_some().into();
        bytes[1..9].copy_from_slice(&parent.map_or([0; 8], |parent| parent.0));
        bytes[9] = adapter.is_some().into();
        bytes[10..18].copy_from_slice(&adapter.map_or(0, |adapter| adapter.0).to_le_bytes());
        for (bytes, token) in bytes[18..].chunks_exact_mut(4).zip(page) {
            bytes.copy_from_slice(&token.0.to_le_bytes());
        }
        let mut hash = [0; 8];
        hash.copy_from_slice(&blake3::hash(&bytes).as_bytes()[..8]);
        Self(hash)
    }

    /// Of each whole page of `tokens`.
    pub fn chain(tokens: &[TokenId], adapter: Option<AdapterId>) -> impl Iterator<Item = Self> {
        tokens.as_chunks().0.iter().scan(None, move |parent, page| {
            *parent = Some(Self::of(*parent, adapter, page));
            *parent
        })
    }

    /// Evenly spread.
    pub fn to_u64(self) -> u64 {
        u64::from_le_bytes(self.0)
    }
}

impl fmt::Debug for BlockHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", u64::from_be_bytes(self.0))
    }
}

/// A change of a prefix cache.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum CacheEvent {
    /// `blocks` can be matched now: the first stands behind `parent`, each other behind the one before it.
    Stored { parent: Option<BlockHash>, blocks: Vec<BlockHash> },
    /// These cannot be matched any more, nor is anything behind them held.
    Removed { blocks: Vec<BlockHash> },
    /// Nothing is held; what is held all the same follows.
    Reset,
}

impl CacheEvent {
    /// How much of a message it takes.
    fn blocks(&self) -> usize {
        match self {
            Self::Stored { blocks, .. } | Self::Removed { blocks } => blocks.len(),
            Self::Reset => 1,
        }
    }
}

/// Consecutive events. A number that is left out is an event that was lost.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CacheUpdate {
    /// The first event's number or, without events, the number of the one that comes next.
    pub first: u64,
    pub events: Vec<CacheEvent>,
}

impl CacheUpdate {
    /// The number of the event after these.
    pub fn next(&self) -> u64 {
        self.first + self.events.len() as u64
    }

    /// The same events in updates of about `max_blocks` blocks each; at least one.
    pub fn pieces(self, max_blocks: usize) -> impl Iterator<Item = Self> {
        let (mut first, mut events, mut begun) = (self.first, self.events.into_iter().peekable(), false);
        std::iter::from_fn(move || {
            if std::mem::replace(&mut begun, true) && events.peek().is_none() {
                return None;
            }
            let mut piece = Self { first, events: Vec::new() };
            let mut blocks = 0;
            while blocks < max_blocks
                && let Some(event) = events.next()
            {
                blocks += event.blocks();
                piece.events.push(event);
            }
            first = piece.next();
            Some(piece)
        })
    }
}

/// Collects events until they are sent. Bounded: when there are too many all are dropped, which the reader notices by the
/// numbers that are left out.
#[derive(Clone, Debug, Default)]
pub struct CacheLog {
    first: u64,
    events: Vec<CacheEvent>,
    blocks: usize,
}

impl CacheLog {
    /// The next event gets this number.
    pub fn starting_at(first: u64) -> Self {
        Self { first, ..Self::default() }
    }

    pub fn is_empty(&self) -> bool {
        self.events.is_empty()
    }

    pub fn stored(&mut self, parent: Option<BlockHash>, block: BlockHash) {
        self.make_room(1);
        append_stored(&mut self.events, parent, block);
    }

    pub fn removed(&mut self, block: BlockHash) {
        self.make_room(1);
        match self.events.last_mut() {
            Some(CacheEvent::Removed { blocks }) if blocks.len() < EVENT_BLOCKS => blocks.push(block),
            _ => self.events.push(CacheEvent::Removed { blocks: vec![block] }),
        }
    }

    pub fn push(&mut self, event: CacheEvent) {
        self.make_room(event.blocks());
        self.events.push(event);
    }

    /// This many events that should stand here were lost.
    pub fn lose(&mut self, count: u64) {
        if count > 0 {
            self.first = self.next() + count;
            self.events.clear();
            self.blocks = 0;
        }
    }

    /// The number of the next event.
    pub fn next(&self) -> u64 {
        self.first + self.events.len() as u64
    }

    pub fn take(&mut self) -> CacheUpdate {
        let taken = CacheUpdate { first: self.first, events: std::mem::take(&mut self.events) };
        *self = Self::starting_at(taken.next());
        taken
    }

    fn make_room(&mut self, blocks: usize) {
        if self.blocks + blocks > LOG_BLOCKS {
            *self = Self::starting_at(self.next());
        }
        self.blocks += blocks;
    }
}

/// Everything a cache holds, as events after [`CacheEvent::Reset`]. Parents come before their children.
pub fn cache_snapshot(blocks: impl IntoIterator<Item = (Option<BlockHash>, BlockHash)>) -> Vec<CacheEvent> {
    let mut events = vec![CacheEvent::Reset];
    for (parent, block) in blocks {
        append_stored(&mut events, parent, block);
    }
    events
}

fn append_stored(events: &mut Vec<CacheEvent>, parent: Option<BlockHash>, block: BlockHash) {
    match events.last_mut() {
        Some(CacheEvent::Stored { blocks, .. })
            if parent.is_some() && blocks.last() == parent.as_ref() && blocks.len() < EVENT_BLOCKS =>
        {
            blocks.push(block);
        }
        _ => events.push(CacheEvent::Stored { parent, blocks: vec![block] }),
    }
}

#[cfg(test)]
#[path = "cache_tests.rs"]
mod tests;
