//! KV memory: pages of 32 tokens, one block per (layer, page, K or V, head). A [`KvElement`] defines the layout inside a block.

mod element;
mod int8;
mod key_scales;

use std::marker::PhantomData;
use std::ops::Range;
use std::sync::Arc;

use baton_core::{PAGE_TOKENS, PageId};
use baton_fabric::{Half, HostMemory, HostShard};

pub(crate) use self::element::KvElement;
pub(crate) use self::int8::{scales, widen};
pub(crate) use self::key_scales::{KeyScales, apply_scales};
use crate::options::layout;
use crate::simd::vector::{Lanes, padded};
use baton_backend::BackendError;

/// The pages of an engine. The fabric reads them and, while a page is reserved for a hand-off, writes them.
pub(crate) struct KvPool<E> {
    memory: Arc<HostMemory>,
    shape: KvShape,
    element: PhantomData<E>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct KvShape {
    pub(crate) layers: usize,
    pub(crate) pages: usize,
    /// KV heads of the model; several shards may hold the same one.
    pub(crate) heads: usize,
    /// An even number.
    pub(crate) head_dim: usize,
}

impl<E: KvElement> KvPool<E> {
    pub(crate) fn new(shape: KvShape, shards: usize) -> Result<Self, BackendError> {
        let too_many = || BackendError::Load(format!("{} KV pages are too many", shape.pages));
        let layout = layout(E::PAGE_ORDER, shape.layers, shape.heads, shape.head_dim);
        layout.page_bytes().checked_mul(shape.pages).ok_or_else(too_many)?;
        let pages = u32::try_from(shape.pages).map_err(|_| too_many())?;
        let memory = HostMemory::new(layout, pages, shards as u32).map_err(|error| {
            BackendError::Device(format!("cannot map memory for {} KV pages: {error}", shape.pages))
        })?;
        Ok(Self { memory: Arc::new(memory), shape, element: PhantomData })
    }

    pub(crate) fn memory(&self) -> &Arc<HostMemory> {
        &self.memory
    }

    pub(crate) fn shard(&self, shard: usize) -> KvShard<'_, E> {
        KvShard { shard: &self.memory.shards()[shard], head_dim: self.shape.head_dim, element: PhantomData }
    }

    /// Appends one page in canonical order: per layer K `[token][head][dim]`, then V; little-endian. Where a token of a head has a
    /// scale, it comes before its dimensions.
    ///
    /// # Safety
    /// No thread writes these tokens of the page now.
    pub(crate) unsafe fn export(&self, page: PageId, layers: Range<usize>, tokens: usize, bytes: &mut Vec<u8>) {
        for (layer, half) in layers.flat_map(|layer| [(layer, Half::Keys), (layer, Half::Values)]) {
            for token in 0..tokens.min(PAGE_TOKENS) {
                for (shard, head) in self.every_head() {
                    let first = shard.head(layer, page, half, head);
                    // SAFETY: an existing token of it; no writer by the caller's promise.
                    unsafe { E::export(first, half, token, self.shape.head_dim, bytes) };
                }
            }
        }
    }

    /// One shard that holds each head, and the head's number in it, in the order of heads.
    fn every_head(&self) -> impl Iterator<Item = (KvShard<'_, E>, usize)> {
        self.memory.offered().flat_map(|shard| {
            let view = KvShard { shard, head_dim: self.shape.head_dim, element: PhantomData };
            (0..shard.layout.heads.len()).map(move |head| (view, head))
        })
    }
}

/// The pages of one shard's heads, which are numbered from 0 here.
pub(crate) struct KvShard<'a, E> {
    shard: &'a HostShard,
    head_dim: usize,
    element: PhantomData<E>,
}

impl<E> Clone for KvShard<'_, E> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<E> Copy for KvShard<'_, E> {}

impl<E: KvElement> KvShard<'_, E> {
    fn head(&self, layer: usize, page: PageId, half: Half, head: usize) -> *mut E {
        let head = self.shard.layout.heads.start + head as u32;
        debug_assert!(self.shard.layout.heads.contains(&head));
        let offset = self.shard.layout.head_in_block(half, head);
        // SAFETY: inside the block.
        unsafe { self.shard.block(layer as u32, page).add(offset).cast() }
    }

    /// K of one head: a matrix of 32 columns.
    pub(crate) fn keys(&self, layer: usize, page: PageId, head: usize) -> *mut E {
        self.head(layer, page, Half::Keys, head)
    }

    /// V of one head: a matrix of [`KvShard::value_width`] columns.
    pub(crate) fn values(&self, layer: usize, page: PageId, head: usize) -> *mut E {
        self.head(layer, page, Half::Values, head)
    }

    pub(crate) fn value_width(&self) -> usize {
        padded(self.head_dim)
    }

    /// Stores one token's K and V of one head.
    ///
    /// # Safety
    /// No other thread uses this token of this page now.
    #[inline(always)]
    pub(crate) unsafe fn store<L: Lanes>(&self, layer: usize, at: (PageId, usize), head: usize, k: &[f32], v: &[f32]) {
        let (page, token) = at;
        assert!(token < PAGE_TOKENS && k.len() == self.head_dim && v.len() == self.head_dim);
        // SAFETY: an existing token of an existing head; exclusive by the caller's promise.
        unsafe {
            E::store_key::<L>(k, self.keys(layer, page, head), token);
            E::store_value::<L>(v, self.values(layer, page, head), token);
        }
    }
}

#[cfg(test)]
mod tests {
    use half::bf16;

    use super::*;
    use crate::simd::isa::Isa;
    use crate::simd::vector::Kernel;

    struct Store<'a>(KvShard<'a, bf16>, usize, usize, usize, &'a [f32], &'a [f32]);

    impl Kernel for Store<'_> {
        type Output = ();

        #[inline(always)]
        fn run<L: Lanes>(self) {
            let Self(shard, layer, token, head, k, v) = self;
            // SAFETY: one thread.
            unsafe { shard.store::<L>(layer, (PageId(2), token), head, k, v) };
        }
    }

    #[test]
    fn pages_keep_what_was_stored() {
        // Four shards hold each of the two heads twice. More than a vector, and less than two.
        const DIM: usize = 22;
        for (shards, isa) in
            [1, 2, 4].into_iter().flat_map(|shards| Isa::available().into_iter().map(move |isa| (shards, isa)))
        {
            let pool = KvPool::<bf16>::new(KvShape { layers: 2, pages: 3, heads: 2, head_dim: DIM }, shards).unwrap();
            let value =
                |layer: usize, token: usize, head: usize, dim: usize| (layer * 100 + token * 7 + head * 3 + dim) as f32;
            for (layer, token) in (0..2).flat_map(|layer| (0..PAGE_TOKENS).map(move |token| (layer, token))) {
                for (shard, held) in pool.memory.shards().iter().enumerate() {
                    let heads = held.layout.heads.start as usize..held.layout.heads.end as usize;
                    for head in heads.clone() {
                        let k: Vec<f32> = (0..DIM).map(|dim| value(layer, token, head, dim)).collect();
                        let v: Vec<f32> = k.iter().map(|k| -k).collect();
                        isa.run(Store(pool.shard(shard), layer, token, head - heads.start, &k, &v));
                    }
                }
            }
            let mut bytes = Vec::new();
            // SAFETY: one thread.
            unsafe { pool.export(PageId(2), 1..2, 5, &mut bytes) };
            let got: Vec<f32> = bytes.chunks(2).map(|b| bf16::from_le_bytes([b[0], b[1]]).to_f32()).collect();
            let mut expected = Vec::new();
            for sign in [1.0, -1.0] {
                for token in 0..5 {
                    for head in 0..2 {
                        expected.extend((0..DIM).map(|dim| sign * value(1, token, head, dim)));
                    }
                }
            }
            assert_eq!(got, expected, "{shards} shards, {isa}");
            bytes.clear();
            // SAFETY: one thread.
            unsafe { pool.export(PageId(1), 0..2, 32, &mut bytes) };
            assert!(bytes.iter().all(|&byte| byte == 0), "another page was written");
        }
    }
}
