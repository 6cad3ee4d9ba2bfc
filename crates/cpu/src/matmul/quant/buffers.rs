//! Buffers of one member for integer matmuls.

use super::integers::{self, ExpandedBlocks, IntegerRows, STRIP_ROWS};
use crate::memory::region::Floats;
use crate::simd::vector::LANES;
use baton_backend::BackendError;

/// Panels whose sums are kept side by side, so that gate and up meet.
pub(super) const PANELS: usize = 2;

pub(crate) struct QuantBuffers {
    /// `[row][panel][column]` of the panels that are being computed.
    pub(super) sums: Floats,
    pub(super) integer_rows: IntegerRows,
    pub(super) expanded_blocks: ExpandedBlocks,
}

impl QuantBuffers {
    /// For items of up to `rows` rows.
    pub(crate) fn new(rows: usize, max_depth: usize) -> Result<Self, BackendError> {
        Ok(Self {
            sums: Floats::new(rows.next_multiple_of(STRIP_ROWS) * PANELS * LANES)?,
            integer_rows: IntegerRows::new(rows, max_depth)?,
            expanded_blocks: integers::expanded_blocks(),
        })
    }

    /// Forgets the rows of the phase before.
    pub(crate) fn clear(&mut self) {
        self.integer_rows.clear();
    }
}
