//! Writes the sums of an item to the output, row after row.

#![allow(clippy::needless_range_loop, reason = "rows are numbers here; indexed loops unroll into registers")]

use std::ops::Range;

use super::{GemmItem, LEAST_OWN_ROWS, Output};
use crate::matmul::arithmetic::Arithmetic;
use crate::simd::math::{self, TOGETHER};
use crate::simd::vector::{LANES, Lanes, padded};

/// Outputs of this size do not stay in a second-level cache beside rows and weights.
const FAR_BYTES: usize = 768 << 10;
/// Panels of gate and up, side by side.
const GATE_AND_UP: usize = 2;

impl<E: Arithmetic> GemmItem<'_, E> {
    /// Asserts that the item lies inside the output.
    pub(in crate::matmul) fn check(&self) {
        let (first, width, rows) = (self.weights.first_column, self.weights.matrix.width(), self.gemm.x.len());
        match &self.gemm.y {
            Output::Store { y, stride } | Output::AddTo { y, stride } => {
                assert!(*stride >= first + width && *stride == padded(*stride) && y.len() >= rows * stride);
            }
            Output::Gated(y) => {
                let is_whole = width.is_multiple_of(GATE_AND_UP * LANES) && first.is_multiple_of(LANES);
                assert!(y.width() >= first + width / GATE_AND_UP && y.rows() >= rows && is_whole)
            }
        }
    }

    /// Whether sums are stored without reading their lines first: later phases read them, when no cache has them any more.
    #[inline(always)]
    pub(in crate::matmul) fn stores_past_caches<L: Lanes>(&self) -> bool {
        let Output::Store { y, .. } = &self.gemm.y else { return false };
        let bytes = self.rows.len() * self.weights.matrix.width() * size_of::<f32>();
        let is_far = self.rows.len() >= LEAST_OWN_ROWS && bytes >= FAR_BYTES;
        let is_aligned = y.as_ptr().addr().is_multiple_of(64) && self.weights.first_column.is_multiple_of(LANES);
        L::TILES && is_far && is_aligned
    }

    /// The output of some rows of this item and one or two of its panels.
    #[inline(always)]
    pub(crate) fn output_rows<L: Lanes>(&self, rows: Range<usize>, panels: Range<usize>) -> OutputRows<'_, E> {
        assert!(rows.start >= self.rows.start && rows.end <= self.rows.end);
        assert!(
            panels.start.is_multiple_of(GATE_AND_UP) && panels.end <= self.panels.end && panels.len() <= GATE_AND_UP
        );
        let (is_gated, has_two_panels) = (matches!(self.gemm.y, Output::Gated(_)), panels.len() == GATE_AND_UP);
        assert!(has_two_panels || !is_gated);
        let first = panels.start * LANES;
        OutputRows {
            output: &self.gemm.y,
            rows,
            column: self.weights.first_column + if is_gated { first / GATE_AND_UP } else { first },
            has_two_panels,
            bias: self.weights.bias.as_ref().map(|bias| &bias[first..panels.end * LANES]),
            past_caches: self.stores_past_caches::<L>(),
        }
    }

    /// Writes the sums of some rows and panels to the output; rows of `sums` are `stride` apart.
    #[inline(always)]
    pub(crate) fn finish<L: Lanes>(&self, rows: Range<usize>, panels: Range<usize>, sums: &[f32], stride: usize) {
        let width = panels.len() * LANES;
        assert!(width <= stride && (rows.is_empty() || sums.len() >= (rows.len() - 1) * stride + width));
        for first in panels.clone().step_by(GATE_AND_UP) {
            let mut output_rows = self.output_rows::<L>(rows.clone(), first..panels.end.min(first + GATE_AND_UP));
            // SAFETY: there are sums of all rows and panels.
            unsafe { output_rows.put_all::<L>(sums.as_ptr().add((first - panels.start) * LANES), stride) };
        }
    }
}

/// Rows of the output, written one after the other. They belong to one item alone.
pub(crate) struct OutputRows<'a, E: Arithmetic> {
    output: &'a Output<'a, E>,
    /// Rows that are not written yet.
    rows: Range<usize>,
    /// The first column in the output.
    column: usize,
    /// Two panels, or one.
    has_two_panels: bool,
    bias: Option<&'a [f32]>,
    past_caches: bool,
}

impl<E: Arithmetic> OutputRows<'_, E> {
    #[inline(always)]
    pub(crate) fn left(&self) -> usize {
        self.rows.len()
    }

    /// Prefetches rows to be written, from `ahead` rows after the next one on.
    #[inline(always)]
    pub(crate) fn prefetch<L: Lanes>(&self, ahead: usize, rows: usize) {
        // Gated output takes a quarter of that, and half of its lines were written with the panels before.
        let (Output::Store { y, stride } | Output::AddTo { y, stride }) = self.output else { return };
        let first = self.rows.start + ahead;
        if self.past_caches || first + rows > self.rows.end {
            return;
        }
        for row in first..first + rows {
            let y = y.as_ptr().wrapping_add(row * stride + self.column);
            L::prefetch_to_write(y.cast());
            L::prefetch_to_write(y.wrapping_add(LANES).cast());
        }
    }

    /// Writes all rows that are left.
    ///
    /// # Safety
    /// Their sums are readable, `stride` apart.
    #[inline(always)]
    pub(crate) unsafe fn put_all<L: Lanes>(&mut self, mut sums: *const f32, stride: usize) {
        let together = if L::MANY_REGISTERS { self.left() / TOGETHER } else { 0 };
        // SAFETY: the caller's promise.
        unsafe {
            for _ in 0..together {
                self.put::<L, TOGETHER>(sums, stride);
                sums = sums.add(TOGETHER * stride);
            }
            while self.left() > 0 {
                self.put::<L, 1>(sums, stride);
                sums = sums.wrapping_add(stride);
            }
        }
    }

    /// Writes the next `R` rows.
    ///
    /// # Safety
    /// `R` rows are left, and their sums are readable, `stride` apart.
    #[inline(always)]
    pub(crate) unsafe fn put<L: Lanes, const R: usize>(&mut self, sums: *const f32, stride: usize) {
        debug_assert!(R <= self.left());
        let (first, column) = (self.rows.start, self.column);
        self.rows.start += R;
        // SAFETY: an item's rows and columns are its alone, and inside of the output; the rest is the caller's promise.
        unsafe {
            match self.output {
                Output::Store { y, stride: to_next } | Output::AddTo { y, stride: to_next } => {
                    let is_added = matches!(self.output, Output::AddTo { .. });
                    for r in 0..R {
                        let y = y.as_ptr().add((first + r) * to_next + column);
                        for panel in 0..1 + usize::from(self.has_two_panels) {
                            let (sum, y) = (self.sum::<L>(sums, r * stride, panel), y.add(panel * LANES));
                            match (is_added, self.past_caches) {
                                (true, _) => L::load(y).add(sum).store(y),
                                (false, true) => sum.store_past_caches(y),
                                (false, false) => sum.store(y),
                            }
                        }
                    }
                }
                Output::Gated(y) => {
                    let mut gates = [L::splat(0.0); R];
                    for r in 0..R {
                        gates[r] = self.sum(sums, r * stride, 0);
                    }
                    gates = math::silu(gates);
                    for r in 0..R {
                        y.put(first + r, column, gates[r].mul(self.sum(sums, r * stride, 1)));
                    }
                }
            }
        }
    }

    /// The sums of one panel, with its bias.
    ///
    /// # Safety
    /// The sums are readable, and the panel exists.
    #[inline(always)]
    unsafe fn sum<L: Lanes>(&self, sums: *const f32, row: usize, panel: usize) -> L {
        // SAFETY: the caller's promise; the bias is as wide as the panels.
        unsafe {
            let sum = L::load(sums.add(row + panel * LANES));
            match self.bias {
                Some(bias) => sum.add(L::load(bias.as_ptr().add(panel * LANES))),
                None => sum,
            }
        }
    }
}
