//! Integer matmuls of quantized weights: another order of sums than that of tiles, with numerics of its own. They serve machines
//! without tiles; generated tokens, which come few at a time; and logits everywhere, whose errors no later layer evens out: no
//! quantized value is rounded here.
//!
//! The 32 values of a row that meet a block share a power of two, and become integers of 14 bits. Per output and block, or
//! per half of one where weights have a scale per 16:
//!
//! ```text
//!   q   = the integer nearest to x · 2¹²⁻ᵉ, where 2ᵉ ≤ largest |x| < 2ᵉ⁺¹     where x is a bf16: exact down to 2ᵉ⁻⁵
//!   dot = sum of q · value                                                        exact, in any order; then the nearest f32
//!   acc = (dot · 2ᵉ⁻¹²) · scale + acc
//!   acc = minimum · (sum of q · 2ᵉ⁻¹²) + acc                                      where a type has none: -zero · scale
//! ```
//!
//! ```text
//!   block   |     32 k      | a block of a type with a scale per 32
//!           | 16 k  | 16 k  | an eighth of a superblock, whose scales are products: small scale · scale
//! ```
//!
//! Eight bits would do with half the products, but cost the most likely token at one position in thirty (docs/exactness.md).
//!
//! For products of bytes `q` lies in memory as two of them, 128 · high + low, both in -64..=64: two products fit into 16 bits even
//! with values of eight.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod block_format;
mod expanded_block;
mod format;
mod product;
mod rows;
mod superblock_format;
#[cfg(test)]
mod tests;

use std::ops::Range;

use half::bf16;

pub(super) use self::expanded_block::{ExpandedBlocks, expanded_blocks};
use self::expanded_block::{PREFETCH_BYTES, SLICE_BLOCKS};
use self::product::IntegerProduct;
pub(super) use self::rows::{IntegerRows, STRIP_ROWS};
use super::buffers::{PANELS, QuantBuffers};
use crate::matmul::gemm::GemmItem;
use crate::matmul::rows::LeftRows;
use crate::simd::vector::{LANES, Lanes};
use crate::weights::quant::QuantizedMatrix;

/// All sums of an item, handed to its `finish`.
#[inline(always)]
pub(crate) fn integers<L: Lanes>(item: &GemmItem<'_, bf16>, matrix: &QuantizedMatrix, buffers: &mut QuantBuffers) {
    round::<L>(item, matrix.blocks(), &mut buffers.integer_rows);
    for first in item.panels.clone().step_by(PANELS) {
        let panels = first..item.panels.end.min(first + PANELS);
        multiply::<L>(matrix, panels.clone(), item.rows.len(), buffers);
        item.finish::<L>(item.rows.clone(), panels, buffers.sums.as_slice(), PANELS * LANES);
    }
}

#[inline(always)]
fn round<L: Lanes>(item: &GemmItem<'_, bf16>, blocks: usize, to: &mut IntegerRows) {
    match &item.gemm.x {
        LeftRows::Normed(normed) => to.round_normed::<L>(&item.rows, normed, blocks),
        // SAFETY: written in an earlier phase; items begin at whole tiles.
        LeftRows::Stored(stored) => unsafe { to.round::<L>(&item.rows, stored.at_row(item.rows.start), blocks) },
    }
}

/// Sums of some panels, [`PANELS`] at most, of rows that are rounded.
#[inline(always)]
fn multiply<L: Lanes>(matrix: &QuantizedMatrix, panels: Range<usize>, rows: usize, buffers: &mut QuantBuffers) {
    let blocks = matrix.blocks();
    for (place, panel) in panels.enumerate() {
        let (format, data) = matrix.panel(panel);
        let sums = &mut buffers.sums.as_mut_slice()[place * LANES..];
        assert!(place < PANELS && sums.len() >= (rows - 1) * PANELS * LANES + LANES);
        let c = sums.as_mut_ptr();
        let integer_rows = &buffers.integer_rows;
        // All blocks of all strips were rounded just now; sums have all rows.
        let product = |first: usize, count: usize| IntegerProduct {
            rows,
            blocks: count,
            left: integer_rows.strips()[first..].as_ptr(),
            left_stride: blocks,
            parts: format.parts(),
            #[cfg(target_arch = "x86_64")]
            small_values: format.has_small_values(),
            c,
            c_stride: PANELS * LANES,
            resume: first > 0,
        };
        #[cfg(target_arch = "x86_64")]
        if L::TABLE_BYTES == 64 && rows <= avx512::FEW_ROWS {
            // SAFETY: below lanes of AVX-512; a whole panel.
            unsafe { avx512::few_rows(&product(0, blocks), format, data) };
            continue;
        }
        let slice_blocks = blocks.div_ceil(blocks.div_ceil(SLICE_BLOCKS));
        for first in (0..blocks).step_by(slice_blocks) {
            let count = slice_blocks.min(blocks - first);
            for block in 0..count {
                // SAFETY: an existing block.
                unsafe { format.expand::<L>(data, first + block, PREFETCH_BYTES, &mut buffers.expanded_blocks[block]) };
            }
            product(first, count).run::<L>(&buffers.expanded_blocks[..count]);
        }
    }
}
