//! KV that shows what it was computed from: what a mock stores for a position is a hash of all tokens up to it, in real
//! pages, so that a hand-off moves and verifies bytes, and pages that were mixed up are noticed by the first step that reads
//! them.
#![allow(unsafe_code, reason = "pages are shared memory; each block states why it is sound")]

use std::sync::Arc;

use baton_backend::BackendError;
use baton_core::{PAGE_TOKENS, PageId};
use baton_fabric::{Half, HostMemory, HostShard, KvLayout, KvMemory, PageOrder};

use crate::config::MockShape;
use crate::history::History;

pub(crate) struct MockKv {
    memory: Arc<HostMemory>,
    layers: u32,
}

/// Each half of a block holds one of these per token; what is left of it is never written.
type KvMark = u64;

impl MockKv {
    pub(crate) fn new(shape: &MockShape, pages: usize, shards: u32) -> Result<Self, BackendError> {
        let pages = u32::try_from(pages).map_err(|_| BackendError::Load(format!("{pages} KV pages are too many")))?;
        let memory = HostMemory::new(layout(shape), pages, shards)
            .map_err(|error| BackendError::Device(format!("cannot map memory for {pages} KV pages: {error}")))?;
        Ok(Self { memory: Arc::new(memory), layers: shape.layers })
    }

    /// What others see of it: they can hand it over, not read it.
    pub(crate) fn memory(&self) -> Arc<dyn KvMemory> {
        Arc::clone(&self.memory) as _
    }

    pub(crate) fn bytes_per_token(&self) -> u64 {
        (self.memory.layout().page_bytes() / PAGE_TOKENS) as u64
    }

    /// `at`: page and token in it.
    pub(crate) fn write(&self, at: (PageId, usize), history: History) {
        for (place, mark) in self.marks(at, history) {
            // SAFETY: inside the block of a page that this step alone may write, as the step loop has decided.
            unsafe { place.write_unaligned(mark) };
        }
    }

    pub(crate) fn holds(&self, at: (PageId, usize), history: History) -> bool {
        // SAFETY: inside the block of a page that is not written while a sequence reads it.
        self.marks(at, history).all(|(place, mark)| unsafe { place.read_unaligned() } == mark)
    }

    /// Where the position's marks lie, and what they should be.
    fn marks(&self, (page, token): (PageId, usize), history: History) -> impl Iterator<Item = (*mut KvMark, KvMark)> {
        let places = self.memory.shards().iter().flat_map(move |shard| {
            (0..self.layers).flat_map(move |layer| {
                [Half::Keys, Half::Values].map(|half| (mark_in(shard, layer, page, half, token), (layer, half)))
            })
        });
        places.map(move |(place, (layer, half))| {
            (place, history.derive(u64::from(layer) << 1 | u64::from(half == Half::Values)))
        })
    }
}

pub(crate) fn layout(shape: &MockShape) -> KvLayout {
    // K and V in f32: eight bytes per dimension.
    let head_dim = shape.kv_bytes_per_token.div_ceil(8 * shape.layers).max(2);
    KvLayout { order: PageOrder::PlainF32, layers: shape.layers, kv_heads: 1, head_dim }
}

fn mark_in(shard: &HostShard, layer: u32, page: PageId, half: Half, token: usize) -> *mut KvMark {
    assert!(token < PAGE_TOKENS);
    let offset = shard.layout.head_in_block(half, shard.layout.heads.start) + token * size_of::<KvMark>();
    // SAFETY: a half has 32 tokens of at least two f32.
    unsafe { shard.block(layer, page).add(offset).cast() }
}

#[cfg(test)]
mod tests {
    use baton_core::TokenId;

    use super::*;

    #[test]
    fn marks_of_other_tokens_places_and_layers_differ() {
        let kv = MockKv::new(&MockShape { layers: 3, ..MockShape::default() }, 4, 2).unwrap();
        let history = |token| History::of(&[TokenId(token)]);
        for token in 0..32 {
            kv.write((PageId(2), token), history(token as u32));
        }
        for token in 0..32 {
            assert!(kv.holds((PageId(2), token), history(token as u32)));
            assert!(!kv.holds((PageId(2), token), history(99)));
            assert!(!kv.holds((PageId(1), token), history(token as u32)));
        }
        let shard = &kv.memory.shards()[0];
        // SAFETY: one thread; a byte inside the memory.
        unsafe { *shard.block(1, PageId(2)).add(8) ^= 1 };
        assert!(kv.holds((PageId(2), 0), history(0)) && !kv.holds((PageId(2), 1), history(1)));
    }

    #[test]
    fn pages_are_as_large_as_configured() {
        for (layers, bytes, expected) in [(4, 64, 64), (4, 1, 64), (32, 131_072, 131_072), (3, 100, 120)] {
            let shape = MockShape { layers, kv_bytes_per_token: bytes, ..MockShape::default() };
            assert_eq!(
                MockKv::new(&shape, 1, 1).unwrap().bytes_per_token(),
                expected,
                "{layers} layers, {bytes} bytes"
            );
        }
    }
}
