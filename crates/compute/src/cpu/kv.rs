//! KV memory: pages of 32 tokens, one block per (layer, page, K or V, head).
//!
//! K is the right-hand side of scores (k = dimension, columns = tokens), V that of values (k = token, columns =
//! dimensions), both in [`Element`] order, so attention reads pages in place.

use std::marker::PhantomData;
use std::ops::Range;
use std::sync::Arc;

use baton_core::{PAGE_TOKENS, PageId};
use baton_fabric::{Half, KvLayout};

use super::element::Element;
use super::lanes::padded;
use crate::ComputeError;

/// Memory that the fabric reads and, while a page is reserved for a hand-off, writes.
pub(crate) struct KvPool<E> {
    memory: Arc<baton_fabric::KvPool>,
    shape: KvShape,
    element: PhantomData<E>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct KvShape {
    pub(crate) layers: usize,
    pub(crate) pages: usize,
    pub(crate) heads: usize,
    /// Even.
    pub(crate) head_dim: usize,
}

impl<E: Element> KvPool<E> {
    pub(crate) fn new(shape: KvShape) -> Result<Self, ComputeError> {
        let too_many = || ComputeError::Load(format!("{} KV pages are too many", shape.pages));
        let layout = KvLayout {
            order: E::PAGE_ORDER,
            layers: shape.layers as u32,
            kv_heads: shape.heads as u32,
            // Values are read in whole vectors; keys are padded alike, so that both halves of a block are equal.
            head_dim: padded(shape.head_dim) as u32,
        };
        layout.page_bytes().checked_mul(shape.pages).ok_or_else(too_many)?;
        let pages = u32::try_from(shape.pages).map_err(|_| too_many())?;
        let memory = baton_fabric::KvPool::new(layout, pages, 1).map_err(|error| {
            ComputeError::Device(format!("cannot map memory for {} KV pages: {error}", shape.pages))
        })?;
        Ok(Self { memory: Arc::new(memory), shape, element: PhantomData })
    }

    pub(crate) fn memory(&self) -> &Arc<baton_fabric::KvPool> {
        &self.memory
    }

    fn head(&self, layer: usize, page: PageId, half: Half, head: usize) -> *mut E {
        debug_assert!(head < self.shape.heads);
        let shard = &self.memory.shards()[0];
        let offset = shard.layout.head_in_block(half, head as u32);
        // SAFETY: inside the block.
        unsafe { shard.block(layer as u32, page).add(offset).cast() }
    }

    /// K of one head: [`Element`] order with 32 columns.
    pub(crate) fn keys(&self, layer: usize, page: PageId, head: usize) -> *mut E {
        self.head(layer, page, Half::Keys, head)
    }

    /// V of one head: [`Element`] order with [`KvPool::value_width`] columns.
    pub(crate) fn values(&self, layer: usize, page: PageId, head: usize) -> *mut E {
        self.head(layer, page, Half::Values, head)
    }

    pub(crate) fn value_width(&self) -> usize {
        padded(self.shape.head_dim)
    }

    /// Stores one token's K and V of one head.
    ///
    /// # Safety
    /// Nobody else uses this token of this page now.
    pub(crate) unsafe fn store(&self, layer: usize, at: (PageId, usize), head: usize, k: &[f32], v: &[f32]) {
        let (page, token) = at;
        assert!(token < PAGE_TOKENS && k.len() == self.shape.head_dim && v.len() == self.shape.head_dim);
        let (keys, values, width) = (self.keys(layer, page, head), self.values(layer, page, head), self.value_width());
        for dim in 0..self.shape.head_dim {
            // SAFETY: indices of an existing token and dimension; exclusive by the caller's promise.
            unsafe {
                *keys.add(E::index(dim, token, PAGE_TOKENS)) = E::from_f32(k[dim]);
                *values.add(E::index(token, dim, width)) = E::from_f32(v[dim]);
            }
        }
    }

    /// One page in the order it has outside of this backend: per layer K `[token][head][dim]`, then V; little-endian.
    ///
    /// # Safety
    /// Nobody writes these tokens of the page now.
    pub(crate) unsafe fn export(&self, page: PageId, layers: Range<usize>, tokens: usize, bytes: &mut Vec<u8>) {
        let width = self.value_width();
        let tokens = tokens.min(PAGE_TOKENS);
        let mut copy = |first: &dyn Fn(usize) -> *mut E, index: &dyn Fn(usize, usize) -> usize| {
            for token in 0..tokens {
                for head in 0..self.shape.heads {
                    for dim in 0..self.shape.head_dim {
                        // SAFETY: indices of an existing token and dimension; no writer by the caller's promise.
                        unsafe { *first(head).add(index(token, dim)) }.to_le_bytes(bytes);
                    }
                }
            }
        };
        for layer in layers {
            copy(&|head| self.keys(layer, page, head), &|token, dim| E::index(dim, token, PAGE_TOKENS));
            copy(&|head| self.values(layer, page, head), &|token, dim| E::index(token, dim, width));
        }
    }
}

#[cfg(test)]
mod tests {
    use half::bf16;

    use super::*;

    #[test]
    fn pages_keep_what_was_stored() {
        let pool = KvPool::<bf16>::new(KvShape { layers: 2, pages: 3, heads: 2, head_dim: 6 }).unwrap();
        let value =
            |layer: usize, token: usize, head: usize, dim: usize| (layer * 100 + token * 7 + head * 3 + dim) as f32;
        for layer in 0..2 {
            for token in 0..PAGE_TOKENS {
                for head in 0..2 {
                    let k: Vec<f32> = (0..6).map(|dim| value(layer, token, head, dim)).collect();
                    let v: Vec<f32> = k.iter().map(|k| -k).collect();
                    // SAFETY: one thread.
                    unsafe { pool.store(layer, (PageId(2), token), head, &k, &v) };
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
                    expected.extend((0..6).map(|dim| sign * value(1, token, head, dim)));
                }
            }
        }
        assert_eq!(got, expected);
        bytes.clear();
        // SAFETY: one thread.
        unsafe { pool.export(PageId(1), 0..2, 32, &mut bytes) };
        assert!(bytes.iter().all(|&byte| byte == 0), "another page was written");
    }
}
