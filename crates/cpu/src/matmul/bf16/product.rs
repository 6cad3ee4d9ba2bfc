//! The one product of bf16 below projections and attention.

#![allow(
    clippy::needless_range_loop,
    reason = "rows, panels and lanes are numbers here; indexed loops unroll into registers"
)]

use half::bf16;

use super::few_rows::Chains;
#[cfg(target_arch = "x86_64")]
use super::overlap::Overlap;
#[cfg(target_arch = "x86_64")]
use super::sizes::NEAR_BLOCKS;
use super::vectors::{BlockProduct, Widened};
#[cfg(target_arch = "x86_64")]
use crate::simd::amx::{self, Operands};
use crate::simd::prefetch::Streamed;
use crate::simd::vector::{Kernel, LANES, Lanes};
use crate::weights::format::{PanelKernel, Plain};
#[cfg(target_arch = "x86_64")]
use crate::weights::layout::TILE_ROWS;
use crate::weights::layout::{BLOCK_PAIRS, FEW_ROWS, TILE, pair_stride};

/// C\[rows × 16·panels\] = A · B, or C += A · B when it goes on where an earlier slice of k has ended. C holds whole tiles.
#[derive(Clone, Copy)]
pub(crate) struct TileProduct {
    /// At most 32.
    pub(crate) rows: usize,
    /// 1 or 2.
    pub(crate) panels: usize,
    /// Of k.
    pub(crate) pairs: usize,
    /// In tile order.
    pub(crate) a: *const bf16,
    pub(crate) a_tile_stride: usize,
    pub(crate) b: *const bf16,
    pub(crate) b_pair_stride: usize,
    pub(crate) b_panel_stride: usize,
    /// With [few rows](FEW_ROWS), without tiles: each line of B prefetches the line so far behind it.
    pub(crate) b_ahead: isize,
    pub(crate) streamed: Streamed,
    pub(crate) c: *mut f32,
    pub(crate) c_stride: usize,
    pub(crate) resume: bool,
}

/// Prefetch distance of weights.
pub(super) const WEIGHTS_AHEAD: isize = 24 * pair_stride(LANES) as isize;

/// Pointers in a product are good for the shapes it states: a comment where one is made says why.
impl Kernel for TileProduct {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self) {
        #[cfg(target_arch = "x86_64")]
        if L::TILES && self.pairs.is_multiple_of(BLOCK_PAIRS) && self.pairs > 0 {
            return self.on_tiles(&[self.b], 0);
        }
        if self.rows > FEW_ROWS {
            // Apart, as it has large buffers.
            return L::call(InVectors(self));
        }
        match self.rows {
            3 => self.strip::<L, 3>(),
            2 => self.strip::<L, 2>(),
            1 => self.strip::<L, 1>(),
            _ => {}
        }
    }
}

/// From one place to another, of which nothing else is known.
#[inline(always)]
pub(crate) fn distance(from: *const bf16, to: *const bf16) -> isize {
    (to.addr() as isize - from.addr() as isize) / size_of::<bf16>() as isize
}

/// Without tiles.
struct InVectors(TileProduct);

impl Kernel for InVectors {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self) {
        self.0.in_vectors::<L>();
    }
}

/// A product whose right-hand side lies in pages, each a block of k: block i at `pages[i]` + `offset`.
pub(crate) struct PagedProduct<'a> {
    /// Of the first page; its prefetch distance is that of the last one, as each other page prefetches the next.
    pub(crate) product: TileProduct,
    pub(crate) pages: &'a [*const bf16],
    pub(crate) offset: usize,
}

impl Kernel for PagedProduct<'_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self) {
        let product = self.product;
        #[cfg(target_arch = "x86_64")]
        if L::TILES {
            return product.on_tiles(self.pages, self.offset);
        }
        for (block, page) in self.pages.iter().enumerate() {
            // SAFETY: A has a block for every page.
            let a = unsafe { product.a.add(block * TILE) };
            let b_ahead = self.pages.get(block + 1).map_or(product.b_ahead, |&next| distance(*page, next));
            TileProduct { a, b: page.wrapping_add(self.offset), b_ahead, resume: block > 0, ..product }.run::<L>();
        }
    }
}

impl TileProduct {
    /// From a whole tile of rows on.
    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    pub(super) fn at_row(&self, row: usize) -> Self {
        // SAFETY: inside A and C.
        unsafe {
            let a = self.a.add(row / TILE_ROWS * self.a_tile_stride);
            Self { rows: self.rows - row, a, c: self.c.add(row * self.c_stride), ..*self }
        }
    }

    /// As many blocks as `pairs` has from each of `rights` on, one after the other.
    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    fn on_tiles(&self, rights: &[*const bf16], offset: usize) {
        match (self.rows > TILE_ROWS, self.panels) {
            (true, 2) => self.tiles::<2, 2>(rights, offset),
            (false, 2) => self.tiles::<1, 2>(rights, offset),
            _ => {
                for row in (0..self.rows).step_by(TILE_ROWS) {
                    self.at_row(row).tiles::<1, 1>(rights, offset);
                }
            }
        }
    }

    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    fn tiles<const ROWS: usize, const COLUMNS: usize>(&self, rights: &[*const bf16], offset: usize) {
        let (blocks, c_bytes) = (self.pairs / BLOCK_PAIRS, self.c_stride * size_of::<f32>());
        // SAFETY: below `Isa::run`, which has configured the tiles; A, B and C hold whole ones.
        unsafe {
            amx::begin::<ROWS, COLUMNS>(self.c, c_bytes, self.resume);
            for (i, right) in rights.iter().enumerate() {
                let product = Self { a: self.a.add(i * blocks * TILE), b: right.add(offset), ..*self };
                for block in 0..blocks {
                    amx::add::<ROWS, COLUMNS>(&product.operands(block));
                }
            }
            amx::end::<ROWS, COLUMNS>(self.c, c_bytes);
        }
    }

    /// Of two tiles of rows and two panels of weights, with other work between stretches of blocks.
    ///
    /// # Safety
    /// Tiles are configured; A, B and C hold whole ones, pairs of B 64 bytes apart.
    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    pub(super) unsafe fn run_overlapped<L: Lanes>(&self, overlap: &mut Overlap<'_>) {
        // SAFETY: the caller's promise.
        unsafe {
            let (blocks, c_bytes) = (self.pairs / BLOCK_PAIRS, self.c_stride * size_of::<f32>());
            amx::begin::<2, 2>(self.c, c_bytes, self.resume);
            let mut block = 0;
            while block < blocks {
                let end = if block < NEAR_BLOCKS { blocks.min(NEAR_BLOCKS) } else { blocks };
                let some = overlap.blocks().min(end - block);
                let mut prefetch = overlap.prefetch();
                amx::add_many(&self.operands(block), some, &mut prefetch);
                overlap.advance::<L>(some, prefetch);
                block += some;
            }
            amx::end::<2, 2>(self.c, c_bytes);
        }
    }

    /// Of one block.
    ///
    /// # Safety
    /// There is such a block.
    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    pub(super) unsafe fn operands(&self, block: usize) -> Operands {
        Operands {
            // SAFETY: the caller's promise.
            left: unsafe { self.a.add(block * TILE) },
            left_tile_bytes: self.a_tile_stride * size_of::<bf16>(),
            // SAFETY: the caller's promise.
            right: unsafe { self.b.add(block * BLOCK_PAIRS * self.b_pair_stride) },
            right_pair_bytes: self.b_pair_stride * size_of::<bf16>(),
            right_panel_bytes: self.b_panel_stride * size_of::<bf16>(),
            streamed: match self.streamed {
                // What is too much for the first-level cache passes by, too.
                Streamed::Left if block >= NEAR_BLOCKS => Streamed::Both,
                passing => passing,
            },
        }
    }

    /// Block after block.
    #[inline(always)]
    fn in_vectors<L: Lanes>(&self) {
        let mut widened = Widened::new();
        for first in (0..self.pairs).step_by(BLOCK_PAIRS) {
            let pairs = BLOCK_PAIRS.min(self.pairs - first);
            // SAFETY: whatever the product states lies inside A, B and C.
            unsafe {
                for panel in 0..self.panels {
                    let b = self.b.add(panel * self.b_panel_stride + first * self.b_pair_stride);
                    widened.put_columns::<L, _>(panel, Plain::new(b, self.b_pair_stride, 0), pairs);
                }
                BlockProduct {
                    rows: self.rows,
                    panels: self.panels,
                    pairs,
                    a: self.a.add(first / BLOCK_PAIRS * TILE),
                    a_tile_stride: self.a_tile_stride,
                    c: self.c,
                    c_stride: self.c_stride,
                    begins: first == 0 && !self.resume,
                }
                .run::<L>(&mut widened);
            }
        }
    }

    /// `R` rows, one panel after the other.
    #[inline(always)]
    fn strip<L: Lanes, const R: usize>(&self) {
        for panel in 0..self.panels {
            // SAFETY: `R` rows and the panel lie inside A, B and C.
            unsafe {
                let (b, c) = (self.b.add(panel * self.b_panel_stride), self.c.add(panel * LANES));
                Chains::<R> { left: self.a, pairs: self.pairs, c, c_stride: self.c_stride, resume: self.resume }
                    .run::<L, _>(Plain::new(b, self.b_pair_stride, self.b_ahead));
            }
        }
    }
}

#[cfg(test)]
mod tests;
