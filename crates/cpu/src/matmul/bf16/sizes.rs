//! How much of a matmul is done at a time, so that caches hold what is used again.

use crate::simd::vector::LANES;
use crate::weights::layout::TILE_ROWS;

/// Rows and panels of one product: two tiles each.
pub(crate) const PRODUCT_ROWS: usize = 2 * TILE_ROWS;
pub(crate) const PRODUCT_PANELS: usize = 2;
pub(super) const PRODUCT_SUMS: usize = PRODUCT_ROWS * PRODUCT_PANELS * LANES;

/// Blocks of two panels that stay in a first-level cache of 48 KiB while rows stream past: 40 KiB.
pub(super) const NEAR_BLOCKS: usize = 20;
/// Matmuls up to this depth take one pass; the blocks beyond the near ones are streamed as rows are. Resuming sums would take longer.
pub(super) const ONE_PASS_BLOCKS: usize = 28;
/// The fewest tile products per pass for which passes are short: their sums have to be resumed. Prompts have as many; fewer were
/// not measured.
pub(super) const NEAR_PRODUCTS: usize = 4;
/// Rows × k of an item, at most, or of a long slice of it: half of a second-level cache of 2 MiB.
pub(super) const ITEM_ELEMENTS: usize = 512 << 10;
/// Beyond that they save no more reads of W.
pub(super) const MAX_ITEM_ROWS: usize = 512;
/// Expanded blocks that few rows are multiplied with at a time. Odd, so that blocks of both panels do not share
/// the same sets of a first-level cache.
pub(super) const STREAM_BLOCKS: usize = 5;
/// Panels whose sums wait for the next slice of k. The more there are, the less often slices of rows are read again from beyond
/// the second-level cache, which has up to 1 MiB of sums then and half as much of 256 rows.
pub(super) const SLICED_PANELS: usize = 64;
