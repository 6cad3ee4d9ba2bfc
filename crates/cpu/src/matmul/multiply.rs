//! The matmul of one item, by the arithmetic of its weights.

use super::arithmetic::Arithmetic;
use super::gemm::{Gemm, GemmItem, WorkSplit};
use crate::simd::vector::{Kernel, Lanes};
use baton_backend::BackendError;

pub(crate) trait Multiply: Arithmetic {
    type Packed: Packed;

    /// Computes all sums of an item and hands them to its [`GemmItem::finish`].
    fn multiply<L: Lanes>(item: &GemmItem<'_, Self>, packed: &mut Self::Packed);
}

/// A member's own rows, packed as a matmul reads them.
pub(crate) trait Packed: Send + Sized {
    /// For steps of up to `max_rows` rows of `depth` k; rows that others have packed are up to `max_depth` deep.
    fn new(max_rows: usize, depth: usize, max_depth: usize) -> Result<Self, BackendError>;

    /// Forgets the rows of the phase before.
    fn clear(&mut self);
}

impl<E: Multiply> Gemm<'_, E> {
    pub(crate) fn kernel<'a>(
        &'a self,
        split: &WorkSplit,
        shard: usize,
        queue_and_item: (usize, usize),
        packed: &'a mut E::Packed,
    ) -> PackedItem<'a, E> {
        PackedItem { item: self.item(split, shard, queue_and_item), packed }
    }
}

/// An item with the buffers of the member that does it.
pub(crate) struct PackedItem<'a, E: Multiply> {
    item: GemmItem<'a, E>,
    packed: &'a mut E::Packed,
}

impl<E: Multiply> Kernel for PackedItem<'_, E> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self) {
        self.item.check();
        E::multiply::<L>(&self.item, self.packed);
        if self.item.stores_past_caches::<L>() {
            L::wait_for_stores();
        }
    }
}
