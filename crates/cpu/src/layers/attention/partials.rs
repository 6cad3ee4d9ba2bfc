//! Partial results of blocks of a long sequence, which several members compute before they are folded.

use super::softmax::BlockSum;
use crate::memory::region::Floats;
use crate::memory::shared::Shared;
use baton_backend::BackendError;

/// One partial result per block and query head.
pub(crate) struct PartialBuffers {
    heads: usize,
    width: usize,
    sums: Vec<BlockSum>,
    values: Floats,
}

impl PartialBuffers {
    pub(crate) fn new(blocks: usize, heads: usize, width: usize) -> Result<Self, BackendError> {
        let values = Floats::new(blocks * heads * width)?;
        Ok(Self { heads, width, sums: vec![BlockSum::EMPTY; blocks * heads], values })
    }

    pub(crate) fn share(&mut self) -> Partials<'_> {
        Partials {
            heads: self.heads,
            width: self.width,
            sums: Shared::new(&mut self.sums),
            values: Shared::new(self.values.as_mut_slice()),
        }
    }
}

#[derive(Clone, Copy)]
pub(crate) struct Partials<'a> {
    heads: usize,
    width: usize,
    sums: Shared<'a, BlockSum>,
    values: Shared<'a, f32>,
}

impl Partials<'_> {
    /// # Safety
    /// No other thread uses this block and head now.
    #[inline(always)]
    pub(super) unsafe fn put(&self, block: usize, head: usize, sum: BlockSum, values: &[f32]) {
        let index = block * self.heads + head;
        // SAFETY: the caller's promise.
        unsafe {
            *self.sums.get_mut(index) = sum;
            self.values.slice_mut(index * self.width..(index + 1) * self.width).copy_from_slice(values);
        }
    }

    /// # Safety
    /// No thread writes this block and head now.
    #[inline(always)]
    pub(super) unsafe fn get(&self, block: usize, head: usize) -> (BlockSum, &[f32]) {
        let index = block * self.heads + head;
        // SAFETY: the caller's promise.
        unsafe {
            (self.sums.slice(index..index + 1)[0], self.values.slice(index * self.width..(index + 1) * self.width))
        }
    }
}
