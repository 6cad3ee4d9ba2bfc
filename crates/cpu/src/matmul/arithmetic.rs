//! What a storage type means for products: which numbers they multiply, and in which order they add.
//!
//! ```text
//!   f32    one chain of fused multiply-adds over k                                   chain
//!   bf16   rows are rounded to bf16, sums taken in blocks of 32 k, as tiles do it    pairs
//! ```

use crate::memory::region::Number;
use crate::memory::shared::Shared;
use crate::simd::vector::{LANES, Lanes};
use crate::weights::element::Element;

pub(crate) trait Arithmetic: Element {
    /// Changes whenever the bits of a result do: order of sums, rounding, attention blocks, elementwise functions.
    const PLAN: &'static str;
    /// What rows that wait for a product are made of.
    type Left: Number;
    /// Items of a product begin at multiples of this many rows.
    const TILE_ROWS: usize;

    /// Rows × columns, with the padding that products want.
    fn waiting_elements(rows: usize, width: usize) -> usize;

    /// How far waiting rows of this width are apart, in whatever [`Self::waiting_index`] counts.
    fn waiting_apart(width: usize) -> usize;

    /// Where (row, column) of waiting rows lies; 16 columns from a multiple of 16 on are side by side.
    fn waiting_index(row: usize, column: usize, apart: usize) -> usize;

    /// Turns 16 values into what the product reads.
    ///
    /// # Safety
    /// 16 elements are writable at `to`.
    unsafe fn put<L: Lanes>(values: L, to: *mut Self::Left);

    fn left_from_f32(value: f32) -> Self::Left;

    /// The most rows that one item of a product of this depth should have: whole tiles.
    fn item_rows(depth: usize) -> usize;

    /// Whether rows so deep do not stay near from one item to the next where there are tiles, so that few items are better.
    fn reads_rows_again(_depth: usize) -> bool {
        false
    }
}

/// Rows that one phase writes for a product of the next.
pub(crate) struct Waiting<'a, E: Arithmetic> {
    values: Shared<'a, E::Left>,
    rows: usize,
    width: usize,
    apart: usize,
}

impl<E: Arithmetic> Clone for Waiting<'_, E> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<E: Arithmetic> Copy for Waiting<'_, E> {}

impl<'a, E: Arithmetic> Waiting<'a, E> {
    pub(crate) fn new(values: Shared<'a, E::Left>, rows: usize, width: usize) -> Self {
        assert!(values.len() >= E::waiting_elements(rows, width));
        Self { values, rows, width, apart: E::waiting_apart(width) }
    }

    pub(crate) fn rows(&self) -> usize {
        self.rows
    }

    pub(crate) fn width(&self) -> usize {
        self.width
    }

    /// # Safety
    /// No thread writes these rows while the result is read.
    pub(crate) unsafe fn at_row(&self, row: usize) -> *const E::Left {
        assert!(row <= self.rows);
        // SAFETY: inside the buffer, or one past its end.
        unsafe { self.values.as_ptr().add(E::waiting_index(row, 0, self.apart)) }
    }

    /// Columns `column..column + 16`, where `column` is a multiple of 16.
    ///
    /// # Safety
    /// They exist, and no other thread uses them in this phase.
    #[inline(always)]
    pub(crate) unsafe fn put<L: Lanes>(&self, row: usize, column: usize, values: L) {
        debug_assert!(row < self.rows && column + LANES <= self.width && column.is_multiple_of(LANES));
        // SAFETY: the caller's promise.
        unsafe { E::put(values, self.values.as_ptr().add(E::waiting_index(row, column, self.apart))) }
    }

    /// Columns from any one on, each value times `scale`.
    ///
    /// # Safety
    /// No other thread uses them in this phase.
    #[inline(always)]
    pub(crate) unsafe fn put_scaled<L: Lanes>(&self, row: usize, column: usize, values: &[f32], scale: f32) {
        assert!(row < self.rows && column + values.len() <= self.width);
        let aligned = if column.is_multiple_of(LANES) { values.len() / LANES * LANES } else { 0 };
        for i in (0..aligned).step_by(LANES) {
            // SAFETY: a whole vector of those; the rest is the caller's promise.
            unsafe { self.put(row, column + i, L::load(values.as_ptr().add(i)).mul(L::splat(scale))) };
        }
        for (i, &value) in values.iter().enumerate().skip(aligned) {
            // SAFETY: inside the buffer; exclusive by the caller's promise.
            unsafe {
                *self.values.as_ptr().add(E::waiting_index(row, column + i, self.apart)) =
                    E::left_from_f32(value * scale);
            }
        }
    }
}
