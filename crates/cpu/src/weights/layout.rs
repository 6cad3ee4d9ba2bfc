//! Sizes and places that weights, rows and kernels share.
//!
//! Rows of the left-hand side lie in tile order: `[rows / 16][k / 32][16][32]`, so that 16 rows × 32 k are one tile of 1 KiB. Behind
//! the last tile of 16 rows there may be [padding](block_stride).

pub(crate) const TILE_ROWS: usize = 16;
/// k of one tile.
pub(crate) const BLOCK_DEPTH: usize = 32;
/// Pairs of k of one tile.
pub(crate) const BLOCK_PAIRS: usize = BLOCK_DEPTH / 2;
/// Quantized weights of one column that share a scale.
pub(crate) const GROUP: usize = BLOCK_DEPTH;
/// Elements.
pub(crate) const TILE: usize = TILE_ROWS * BLOCK_DEPTH;

/// The most rows that are multiplied with weights as these are read: they wait for memory.
pub(crate) const FEW_ROWS: usize = 3;
/// Deeper matmuls are cut along k, so that an item's rows stay in the second-level cache while panels stream past.
pub(crate) const WHOLE_BLOCKS: usize = 64;

/// Elements from one pair of k to the next.
pub(crate) const fn pair_stride(width: usize) -> usize {
    2 * width
}

/// Blocks from 16 rows of `blocks` to the next 16. Deep rows are multiplied one slice of k after the other. If they were a
/// multiple of 128 KiB apart, the slices of all of them would share the same sets of a second-level cache and drive each other
/// out. So it is 9 KiB beyond a multiple of 16 KiB:
///
/// ```text
///   sets       0 .................. 128 KiB
///   rows  0    |-- slice --|                      32 or 64 KiB each
///        16       |-- slice --|
///        32          |-- slice --|                … 16 times: about as many in every set
/// ```
#[inline(always)]
pub(crate) fn block_stride(blocks: usize) -> usize {
    const STEP: usize = 16;
    const BEYOND: usize = 9;
    if blocks <= WHOLE_BLOCKS { blocks } else { (blocks - BEYOND).next_multiple_of(STEP) + BEYOND }
}

/// Elements from 16 rows of `blocks` to the next 16.
#[inline(always)]
pub(crate) fn tile_stride(blocks: usize) -> usize {
    block_stride(blocks) * TILE
}

/// The index of (row, k) where 16 rows and the next are `block_stride` apart.
#[inline(always)]
pub(crate) fn tile_index(row: usize, k: usize, block_stride: usize) -> usize {
    (row / TILE_ROWS * block_stride + k / BLOCK_DEPTH) * TILE + row % TILE_ROWS * BLOCK_DEPTH + k % BLOCK_DEPTH
}
