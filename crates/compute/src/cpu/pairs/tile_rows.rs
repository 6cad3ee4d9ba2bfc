//! Left-hand rows in tile order: `[rows / 16][k / 32][16][32]`, so that 16 rows × 32 k are one tile of 1 KiB.

use std::ops::Range;

use half::bf16;

use super::{MAX_ITEM_ROWS, PRODUCT_PANELS, PRODUCT_ROWS, PRODUCT_SUMS, SLICE_BLOCKS, SLICED_PANELS, STREAM_BLOCKS};
use crate::ComputeError;
use crate::cpu::arithmetic::{Arithmetic, Packed};
use crate::cpu::lanes::{LANES, Lanes};
use crate::cpu::quant::QuantBuffers;
use crate::cpu::region::{Buffer, Floats};
use crate::cpu::rows::Normed;

pub(crate) const TILE_ROWS: usize = 16;
/// k of one tile.
pub(crate) const BLOCK_DEPTH: usize = 32;
/// Elements.
pub(crate) const TILE: usize = TILE_ROWS * BLOCK_DEPTH;

/// Where (row, k) lies in rows of so many blocks.
#[inline(always)]
pub(crate) fn tile_index(row: usize, k: usize, blocks: usize) -> usize {
    (row / TILE_ROWS * blocks + k / BLOCK_DEPTH) * TILE + row % TILE_ROWS * BLOCK_DEPTH + k % BLOCK_DEPTH
}

/// Buffers of one member.
pub(crate) struct TileRows {
    /// Normed and rounded, kept from item to item of a phase.
    rows: Buffer<bf16>,
    blocks: usize,
    packed: Option<Range<usize>>,
    /// Of one product, or of all that wait for the next slice of k.
    sums: Floats,
    /// What one pass over the rows multiplies with, and what the next one will, where weights are compact.
    expanded: Buffer<bf16>,
    pub(crate) quant: QuantBuffers,
}

impl Packed for TileRows {
    fn new(max_rows: usize, depth: usize, max_depth: usize) -> Result<Self, ComputeError> {
        let rows = max_rows.min(MAX_ITEM_ROWS).next_multiple_of(PRODUCT_ROWS);
        let expanded_blocks = max_depth.div_ceil(BLOCK_DEPTH).clamp(STREAM_BLOCKS, SLICE_BLOCKS);
        Ok(Self {
            rows: Buffer::new(rows * depth.next_multiple_of(BLOCK_DEPTH))?,
            blocks: depth.div_ceil(BLOCK_DEPTH),
            packed: None,
            sums: Floats::new(rows / PRODUCT_ROWS * SLICED_PANELS / PRODUCT_PANELS * PRODUCT_SUMS)?,
            expanded: Buffer::new(2 * PRODUCT_PANELS * expanded_blocks * TILE)?,
            quant: QuantBuffers::new(rows, max_depth)?,
        })
    }

    fn clear(&mut self) {
        self.packed = None;
        self.quant.clear();
    }
}

impl TileRows {
    /// Rows that are packed already are not packed again.
    #[inline(always)]
    pub(super) fn pack<L: Lanes>(&mut self, from: &Normed<'_>, rows: Range<usize>) -> *const bf16 {
        let tiles = self.rows.as_mut_slice();
        if self.packed.as_ref() != Some(&rows) {
            assert!(from.norm.weight.len() <= self.blocks * BLOCK_DEPTH);
            assert!(rows.len().next_multiple_of(TILE_ROWS) * self.blocks * BLOCK_DEPTH <= tiles.len());
            for i in 0..rows.len() {
                from.norm.apply::<L>(from.row(rows.start + i), |column, normed| {
                    // SAFETY: 16 columns of one block of a row that fits.
                    unsafe { bf16::put(normed, tiles.as_mut_ptr().add(tile_index(i, column, self.blocks))) };
                });
            }
            self.packed = Some(rows);
        }
        tiles.as_ptr()
    }

    /// Of one product. Pointers from earlier calls stay good.
    #[inline(always)]
    pub(super) fn sums(&mut self, product: usize) -> *mut f32 {
        assert!((product + 1) * PRODUCT_SUMS <= self.sums.as_slice().len());
        // SAFETY: inside the buffer.
        unsafe { self.sums.as_mut_ptr().add(product * PRODUCT_SUMS) }
    }

    /// Of so many rows × panels.
    #[inline(always)]
    pub(super) fn sums_of(&mut self, rows: usize, panels: usize) -> &mut [f32] {
        &mut self.sums.as_mut_slice()[..rows * panels * LANES]
    }

    /// Room for so many tiles, in one half of the buffer or the other. Pointers from earlier calls stay good.
    #[inline(always)]
    pub(super) fn expanded(&mut self, half: usize, tiles: usize) -> *mut bf16 {
        let room = self.expanded.as_slice().len() / 2;
        assert!(half < 2 && tiles * TILE <= room);
        // SAFETY: inside the buffer.
        unsafe { self.expanded.as_mut_ptr().add(half * room) }
    }
}
