//! 32 k of a panel as integer matmuls read them, whatever format they come from.

use crate::simd::vector::LANES;
use crate::weights::quant::packing::{DOT_BYTES, DOTS_PER_BLOCK};

/// One byte per value, `[k / 4][column][k % 4]`, with k in the order in which rows have them: even ones before odd ones.
#[derive(Clone)]
#[repr(C, align(64))]
pub(crate) struct ExpandedBlock {
    pub(super) values: [[u8; DOT_BYTES]; DOTS_PER_BLOCK],
    /// For all k, or for each half of 16.
    pub(super) scales: [[f32; LANES]; 2],
    pub(super) minima: [[f32; LANES]; 2],
}

impl ExpandedBlock {
    pub(super) const ZERO: Self =
        Self { values: [[0; DOT_BYTES]; DOTS_PER_BLOCK], scales: [[0.0; LANES]; 2], minima: [[0.0; LANES]; 2] };
}

/// The `i`-th group of four k of a part. A block has one part, or two of 16 k, each with a scale.
///
/// ```text
///   places   0 … 7   8 … 15   16 … 23   24 … 31
///   k        0 … 14  16 … 30   1 … 15   17 … 31
///   part       0       1         0         1
/// ```
#[inline(always)]
pub(super) const fn k4_of(parts: usize, part: usize, i: usize) -> usize {
    if parts == 1 { i } else { i / 2 * 4 + part * 2 + i % 2 }
}

/// Blocks that are expanded at a time, at most: 18 KiB, which strips of rows stream past.
pub(super) const SLICE_BLOCKS: usize = 24;
/// Distance at which packed blocks are prefetched.
pub(super) const PREFETCH_BYTES: usize = 4 << 10;

/// The blocks that are expanded at a time.
pub(in crate::matmul::quant) type ExpandedBlocks = Box<[ExpandedBlock]>;

/// Room for [`SLICE_BLOCKS`].
pub(in crate::matmul::quant) fn expanded_blocks() -> ExpandedBlocks {
    std::iter::repeat_n(ExpandedBlock::ZERO, SLICE_BLOCKS).collect()
}
