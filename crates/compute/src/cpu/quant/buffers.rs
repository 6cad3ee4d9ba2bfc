//! What one member needs beside its rows when weights are cells.

use std::ops::Range;

use half::bf16;

use super::cell::Tile;
use super::format::GROUP;
use super::integers::{self, Expanded, WholeRows};
use super::multiply::{PANELS, SLICE_BLOCKS};
use super::product::FEW_ROWS;
use crate::ComputeError;
use crate::cpu::lanes::LANES;
use crate::cpu::region::{Buffer, Floats};

pub(crate) struct QuantBuffers {
    /// Codes of one panel, slice by slice.
    expanded: Buffer<bf16>,
    /// `[row][panel][column]` of the panels that are being computed.
    pub(super) sums: Floats,
    /// `[row tile][block][row]`
    pub(super) block_sums: Floats,
    summed: Option<Range<usize>>,
    /// `[block][row][even k, then odd k]` of few rows.
    pub(super) widened: Floats,
    widened_rows: Option<Range<usize>>,
    /// `[row tile][block][half][row]`
    pub(super) half_sums: Floats,
    halves_summed: Option<Range<usize>>,
    pub(super) whole: WholeRows,
    pub(super) expanded_cells: Expanded,
}

impl QuantBuffers {
    /// For items of up to `rows` rows.
    pub(crate) fn new(rows: usize, max_depth: usize) -> Result<Self, ComputeError> {
        Ok(Self {
            expanded: Buffer::new(SLICE_BLOCKS * LANES * GROUP)?,
            sums: Floats::new(rows * PANELS * LANES)?,
            block_sums: Floats::new(rows * max_depth.div_ceil(GROUP))?,
            summed: None,
            widened: Floats::new(FEW_ROWS * max_depth.next_multiple_of(GROUP))?,
            widened_rows: None,
            half_sums: Floats::new(2 * rows * max_depth.div_ceil(GROUP))?,
            halves_summed: None,
            whole: WholeRows::new(rows, max_depth)?,
            expanded_cells: integers::expanded(),
        })
    }

    /// Forgets the rows of the phase before.
    pub(crate) fn clear(&mut self) {
        self.summed = None;
        self.widened_rows = None;
        self.halves_summed = None;
        self.whole.clear();
    }

    /// Whether sums of these rows' blocks are still to be taken in this phase; from now on they are not.
    pub(super) fn must_sum(&mut self, rows: &Range<usize>) -> bool {
        self.summed.replace(rows.clone()).as_ref() != Some(rows)
    }

    /// The same for their widened copies.
    pub(super) fn must_widen(&mut self, rows: &Range<usize>) -> bool {
        self.widened_rows.replace(rows.clone()).as_ref() != Some(rows)
    }

    /// The same for sums of half blocks.
    pub(super) fn must_sum_halves(&mut self, rows: &Range<usize>) -> bool {
        self.halves_summed.replace(rows.clone()).as_ref() != Some(rows)
    }

    pub(super) fn tiles(&mut self) -> &mut [Tile] {
        self.expanded.as_mut_slice().as_chunks_mut().0
    }
}
