//! A member's buffers for matmuls of bf16: left-hand rows in [tile order](crate::weights::layout), sums, and expanded weights.

#![allow(clippy::needless_range_loop, reason = "rows are numbers here; indexed loops unroll into registers")]

use std::ops::Range;

use half::bf16;

use super::sizes::{MAX_ITEM_ROWS, PRODUCT_PANELS, PRODUCT_ROWS, PRODUCT_SUMS, SLICED_PANELS, STREAM_BLOCKS};
use crate::matmul::arithmetic::Arithmetic;
use crate::matmul::multiply::Packed;
use crate::matmul::quant::QuantBuffers;
use crate::matmul::rows::Normed;
use crate::memory::region::{Buffer, Floats};
use crate::simd::math::TOGETHER;
use crate::simd::vector::{LANES, Lanes};
use crate::weights::layout::{BLOCK_DEPTH, TILE, TILE_ROWS, WHOLE_BLOCKS, block_stride, tile_index};
use baton_backend::BackendError;

/// Buffers of one member.
pub(crate) struct TileRows {
    /// Normed and rounded, kept from item to item of a phase.
    rows: Buffer<bf16>,
    block_stride: usize,
    packed: Option<Range<usize>>,
    /// Sums of two tile products, of two passes, or of a group of panels that wait for the next slice of k.
    sums: Floats,
    /// Which of two buffers has the sums of the last product, where products alternate between them.
    sums_buffer: usize,
    /// Expanded weights of this pass over the rows, and of the next one.
    expanded: Buffer<bf16>,
    pub(crate) quant: QuantBuffers,
}

impl Packed for TileRows {
    fn new(max_rows: usize, depth: usize, max_depth: usize) -> Result<Self, BackendError> {
        let rows = max_rows.min(MAX_ITEM_ROWS).next_multiple_of(PRODUCT_ROWS);
        let block_stride = block_stride(depth.div_ceil(BLOCK_DEPTH));
        let expanded_blocks = max_depth.div_ceil(BLOCK_DEPTH).clamp(STREAM_BLOCKS, WHOLE_BLOCKS);
        Ok(Self {
            rows: Buffer::new(rows * block_stride * BLOCK_DEPTH)?,
            block_stride,
            packed: None,
            sums: Floats::new(rows / PRODUCT_ROWS * SLICED_PANELS / PRODUCT_PANELS * PRODUCT_SUMS)?,
            sums_buffer: 0,
            expanded: Buffer::new(2 * PRODUCT_PANELS * expanded_blocks * TILE)?,
            quant: QuantBuffers::new(rows, max_depth)?,
        })
    }

    fn clear(&mut self) {
        self.packed = None;
        self.quant.clear();
    }
}

/// `R` rows of one tile, normed and rounded.
///
/// # Safety
/// There is room for them at `to`.
#[inline(always)]
unsafe fn pack_rows<L: Lanes, const R: usize>(from: &Normed<'_>, first: usize, to: *mut bf16) {
    let mut rows = [&[][..]; R];
    for r in 0..R {
        rows[r] = from.row(first + r);
    }
    let (scales, weight): ([L; R], _) = (from.norm.scales(rows), from.norm.weight);
    for column in (0..weight.len()).step_by(LANES) {
        // SAFETY: whole vectors of rows that are as wide as the weight, and of blocks that fit.
        unsafe {
            let (weight, to) = (L::load(weight.as_ptr().add(column)), to.add(tile_index(0, column, 0)));
            for r in 0..R {
                let x = L::load(rows[r].as_ptr().add(column));
                bf16::put(weight.mul(x.mul(scales[r])), to.add(r * BLOCK_DEPTH));
            }
        }
    }
}

impl TileRows {
    /// Rows that are packed already are not packed again.
    #[inline(always)]
    pub(super) fn pack<L: Lanes>(&mut self, from: &Normed<'_>, rows: Range<usize>) -> *const bf16 {
        let tiles = self.rows.as_mut_slice();
        if self.packed.as_ref() != Some(&rows) {
            assert!(from.norm.weight.len() <= self.block_stride * BLOCK_DEPTH);
            assert!(rows.len().next_multiple_of(TILE_ROWS) * self.block_stride * BLOCK_DEPTH <= tiles.len());
            const { assert!(TILE_ROWS.is_multiple_of(TOGETHER)) };
            let (to, mut i) = (tiles.as_mut_ptr(), 0);
            // SAFETY: the rows fit, as asserted.
            unsafe {
                while i + TOGETHER <= rows.len() {
                    pack_rows::<L, TOGETHER>(from, rows.start + i, to.add(tile_index(i, 0, self.block_stride)));
                    i += TOGETHER;
                }
                while i < rows.len() {
                    pack_rows::<L, 1>(from, rows.start + i, to.add(tile_index(i, 0, self.block_stride)));
                    i += 1;
                }
            }
            self.packed = Some(rows);
        }
        tiles.as_ptr()
    }

    /// The sums of some tile products, one after the other. Pointers from earlier calls stay good.
    #[inline(always)]
    pub(super) fn sums(&mut self, first: usize, products: usize) -> *mut f32 {
        assert!((first + products) * PRODUCT_SUMS <= self.sums.as_slice().len());
        // SAFETY: inside the buffer.
        unsafe { self.sums.as_mut_ptr().add(first * PRODUCT_SUMS) }
    }

    /// The sums of one tile product, not where those of the one before are.
    #[inline(always)]
    pub(super) fn other_sums(&mut self) -> *mut f32 {
        self.sums_buffer = 1 - self.sums_buffer;
        self.sums(self.sums_buffer, 1)
    }

    /// Sums of `rows` × `panels`.
    #[inline(always)]
    pub(super) fn sums_of(&mut self, rows: usize, panels: usize) -> &mut [f32] {
        &mut self.sums.as_mut_slice()[..rows * panels * LANES]
    }

    /// Room for `blocks` of two panels, in one half of the buffer or the other. Pointers from earlier calls stay good.
    #[inline(always)]
    pub(super) fn expanded(&mut self, half: usize, blocks: usize) -> *mut bf16 {
        let room = self.expanded.as_slice().len() / 2;
        assert!(half < 2 && PRODUCT_PANELS * blocks * TILE <= room);
        // SAFETY: inside the buffer.
        unsafe { self.expanded.as_mut_ptr().add(half * room) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::matmul::bf16::passes::{LONG_PASSES, PassBlocks};

    #[test]
    fn slices_of_deep_rows_spread_over_the_sets_of_a_cache() {
        for blocks in 1..=WHOLE_BLOCKS {
            assert_eq!(block_stride(blocks), blocks);
        }
        // Of a second-level cache of 16 ways: 64 KiB of sets, or 128.
        for (blocks, sets) in (WHOLE_BLOCKS + 1..1000).flat_map(|blocks| [(blocks, 64), (blocks, 128)]) {
            let stride = block_stride(blocks);
            assert!(stride >= blocks && stride < blocks + 16);
            for slice in [LONG_PASSES.slice, PassBlocks::near(blocks).slice] {
                let mut lines = vec![0; sets];
                for block in (0..16).flat_map(|tile| (0..slice).map(move |block| tile * stride + block)) {
                    lines[block % sets] += 1;
                }
                let even = 16 * slice / sets;
                let most = even + (even / 4).max(2);
                assert!(lines.iter().all(|&lines| lines <= most), "{blocks} blocks, stride {stride}: {lines:?}");
            }
        }
    }
}
