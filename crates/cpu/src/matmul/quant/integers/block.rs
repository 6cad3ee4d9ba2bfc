//! 32 k of a panel as products read them, whatever cell they come from.

use super::super::codes::{QUAD_BYTES, QUADS};
use crate::simd::vector::LANES;

/// One byte per code, `[quad][column][k of the quad]`; the k of a block in the order in which rows have them, even ones before
/// odd ones.
#[derive(Clone)]
#[repr(C, align(64))]
pub(crate) struct Block {
    pub(super) codes: [[u8; QUAD_BYTES]; QUADS],
    /// Of all k, or of each 16.
    pub(super) scales: [[f32; LANES]; 2],
    pub(super) minima: [[f32; LANES]; 2],
}

impl Block {
    pub(super) const ZERO: Self =
        Self { codes: [[0; QUAD_BYTES]; QUADS], scales: [[0.0; LANES]; 2], minima: [[0.0; LANES]; 2] };
}

/// The `i`-th quad of a part, where a block has `parts` parts, each with a scale: one, or two of 16 k.
///
/// ```text
///   places   0 … 7   8 … 15   16 … 23   24 … 31
///   k        0 … 14  16 … 30   1 … 15   17 … 31
///   part       0       1         0         1
/// ```
#[inline(always)]
pub(super) const fn quad_of(parts: usize, part: usize, i: usize) -> usize {
    if parts == 1 { i } else { i / 2 * 4 + part * 2 + i % 2 }
}

/// Blocks that are expanded at a time, at most: 18 KiB, which strips of rows stream past.
pub(super) const SLICE_BLOCKS: usize = 24;
/// Distance at which cells are prefetched.
pub(super) const PREFETCH_BYTES: usize = 4 << 10;

/// Blocks that were expanded from cells.
pub(in crate::matmul::quant) type Expanded = Box<[Block]>;

/// Room for the blocks that are expanded at a time.
pub(in crate::matmul::quant) fn expanded() -> Expanded {
    std::iter::repeat_n(Block::ZERO, SLICE_BLOCKS).collect()
}
