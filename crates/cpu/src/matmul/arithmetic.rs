//! What a storage type means for matmuls: which numbers they multiply, and in which order they add.
//!
//! ```text
//!   f32    one chain of fused multiply-adds over k
//!   bf16   rows are rounded to bf16, sums taken in blocks of 32 k, as tiles do it
//! ```

use crate::memory::region::Number;
use crate::memory::shared::Shared;
use crate::simd::vector::{LANES, Lanes};
use crate::weights::element::Element;

pub(crate) trait Arithmetic: Element {
    /// Changes whenever the bits of a result do: order of sums, rounding, attention blocks, elementwise functions.
    const NUMERICS: &'static str;
    /// The elements of rows that are stored for a matmul.
    type Left: Number;
    /// Items of a matmul begin at multiples of this number of rows.
    const TILE_ROWS: usize;

    /// Elements of a left operand, with the padding that matmuls want.
    fn left_operand_elements(rows: usize, width: usize) -> usize;

    /// The stride of rows of this width, as [`Self::left_operand_index`] takes it.
    fn left_operand_stride(width: usize) -> usize;

    /// The index of (row, column) in a left operand; 16 columns from a multiple of 16 on are side by side.
    fn left_operand_index(row: usize, column: usize, stride: usize) -> usize;

    /// Stores 16 values as matmuls read them.
    ///
    /// # Safety
    /// 16 elements are writable at `to`.
    unsafe fn put<L: Lanes>(values: L, to: *mut Self::Left);

    fn left_from_f32(value: f32) -> Self::Left;

    /// The most rows that one item of a matmul of this depth should have: whole tiles.
    fn item_rows(depth: usize) -> usize;

    /// Whether rows of this depth leave the caches between two items where there are tiles, so that few items are better.
    fn reads_rows_again(_depth: usize) -> bool {
        false
    }
}

/// Rows that one phase writes for a matmul of the next.
pub(crate) struct LeftOperand<'a, E: Arithmetic> {
    values: Shared<'a, E::Left>,
    rows: usize,
    width: usize,
    stride: usize,
}

impl<E: Arithmetic> Clone for LeftOperand<'_, E> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<E: Arithmetic> Copy for LeftOperand<'_, E> {}

impl<'a, E: Arithmetic> LeftOperand<'a, E> {
    pub(crate) fn new(values: Shared<'a, E::Left>, rows: usize, width: usize) -> Self {
        assert!(values.len() >= E::left_operand_elements(rows, width));
        Self { values, rows, width, stride: E::left_operand_stride(width) }
    }

    pub(crate) fn rows(&self) -> usize {
        self.rows
    }

    pub(crate) fn width(&self) -> usize {
        self.width
    }

    /// # Safety
    /// No one writes these rows while the result is read.
    pub(crate) unsafe fn at_row(&self, row: usize) -> *const E::Left {
        assert!(row <= self.rows);
        // SAFETY: inside the buffer, or one past its end.
        unsafe { self.values.as_ptr().add(E::left_operand_index(row, 0, self.stride)) }
    }

    /// Writes columns `column..column + 16`, where `column` is a multiple of 16.
    ///
    /// # Safety
    /// They exist, and no other thread uses them in this phase.
    #[inline(always)]
    pub(crate) unsafe fn put<L: Lanes>(&self, row: usize, column: usize, values: L) {
        debug_assert!(row < self.rows && column + LANES <= self.width && column.is_multiple_of(LANES));
        // SAFETY: the caller's promise.
        unsafe { E::put(values, self.values.as_ptr().add(E::left_operand_index(row, column, self.stride))) }
    }

    /// Writes columns from `column` on, each value times `scale`.
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
                *self.values.as_ptr().add(E::left_operand_index(row, column + i, self.stride)) =
                    E::left_from_f32(value * scale);
            }
        }
    }
}
