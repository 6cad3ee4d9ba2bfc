//! KV memory: pages of 32 tokens, one block per (layer, page, K or V, head).
//!
//! K is the right-hand side of scores (k = dimension, columns = tokens), V that of values (k = token, columns =
//! dimensions), both in [`Element`] order, so attention reads pages in place.

use std::marker::PhantomData;
use std::ops::Range;

use baton_core::{PAGE_TOKENS, PageId};

use super::element::Element;
use super::lanes::padded;
use super::region::Region;
use crate::ComputeError;

pub(crate) struct KvPool<E> {
    memory: Region,
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

impl KvShape {
    fn key_block(&self) -> usize {
        self.head_dim * PAGE_TOKENS
    }

    fn value_block(&self) -> usize {
        padded(self.head_dim) * PAGE_TOKENS
    }

    /// Elements of one layer of one page.
    fn page(&self) -> usize {
        self.heads * (self.key_block() + self.value_block())
    }
}

impl<E: Element> KvPool<E> {
    pub(crate) fn new(shape: KvShape) -> Result<Self, ComputeError> {
        let elements = [shape.layers, shape.pages, shape.page(), size_of::<E>()];
        let bytes = elements.into_iter().try_fold(1_usize, usize::checked_mul);
        let bytes = bytes.ok_or_else(|| ComputeError::Load(format!("{} KV pages are too many", shape.pages)))?;
        Ok(Self { memory: Region::new(bytes)?, shape, element: PhantomData })
    }

    fn page(&self, layer: usize, page: PageId) -> *mut E {
        assert!(layer < self.shape.layers && page.index() < self.shape.pages, "layer {layer}, page {page}");
        let first = (layer * self.shape.pages + page.index()) * self.shape.page();
        // SAFETY: inside the region.
        unsafe { self.memory.as_ptr().cast::<E>().add(first) }
    }

    /// K of one head: [`Element`] order with 32 columns.
    pub(crate) fn keys(&self, layer: usize, page: PageId, head: usize) -> *mut E {
        debug_assert!(head < self.shape.heads);
        // SAFETY: inside the page.
        unsafe { self.page(layer, page).add(head * self.shape.key_block()) }
    }

    /// V of one head: [`Element`] order with [`KvPool::value_width`] columns.
    pub(crate) fn values(&self, layer: usize, page: PageId, head: usize) -> *mut E {
        debug_assert!(head < self.shape.heads);
        let keys = self.shape.heads * self.shape.key_block();
        // SAFETY: inside the page.
        unsafe { self.page(layer, page).add(keys + head * self.shape.value_block()) }
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
