//! What one member needs beside its rows when weights are cells.

use super::integers::{self, Expanded, IntegerRows, STRIP_ROWS};
use crate::memory::region::Floats;
use crate::simd::vector::LANES;
use baton_backend::BackendError;

/// Panels whose sums are kept side by side, so that gate and up meet.
pub(super) const PANELS: usize = 2;

pub(crate) struct QuantBuffers {
    /// `[row][panel][column]` of the panels that are being computed.
    pub(super) sums: Floats,
    pub(super) whole: IntegerRows,
    pub(super) expanded_cells: Expanded,
}

impl QuantBuffers {
    /// For items of up to `rows` rows.
    pub(crate) fn new(rows: usize, max_depth: usize) -> Result<Self, BackendError> {
        Ok(Self {
            sums: Floats::new(rows.next_multiple_of(STRIP_ROWS) * PANELS * LANES)?,
            whole: IntegerRows::new(rows, max_depth)?,
            expanded_cells: integers::expanded(),
        })
    }

    /// Forgets the rows of the phase before.
    pub(crate) fn clear(&mut self) {
        self.whole.clear();
    }
}
