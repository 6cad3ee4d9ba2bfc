//! Tiles of rows times one panel of cells, on AMX.
//!
//! Every block's products leave the tiles to be scaled. Three blocks are on their way at a time, because a tile that is
//! stored right after its product stands still until that is there:
//!
//! ```text
//!   multiply   b    b+1  b+2  b+3
//!   store                b    b+1
//!   scale                     b
//! ```

#![allow(
    clippy::needless_range_loop,
    reason = "rows are numbers here; adapters of iterators would not be inlined across target features"
)]

use std::arch::x86_64::*;
use std::mem::MaybeUninit;

use half::bf16;

use super::few_rows::sixteen;
use super::product::CellProduct;
use crate::cpu::lanes::LANES;
use crate::cpu::pairs::{TILE, TILE_ROWS};
use crate::cpu::tiles;

/// Products of one block before they are scaled: `[row][column]`.
#[repr(align(64))]
struct Dots(#[expect(dead_code, reason = "written and read by address")] [f32; TILE_ROWS * LANES]);

/// Iterations from a block's product to its scaling.
const STORED_AFTER: usize = 2;
const SCALED_AFTER: usize = 3;

/// The first `R` rows of each tile are computed, and those that the product has written. `codes` are all its blocks as tiles.
///
/// # Safety
/// Pointers are good for the shapes that the product states, for whole tiles of rows; tiles are configured, and the machine
/// has AVX-512.
#[target_feature(enable = "avx512f,avx512bw")]
pub(super) unsafe fn many_rows<const R: usize>(product: &CellProduct, codes: *const bf16) {
    // SAFETY: the caller's promise.
    unsafe {
        if product.format.minima {
            pipeline::<R, true>(product, codes);
        } else {
            pipeline::<R, false>(product, codes);
        }
    }
}

/// # Safety
/// As above.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
unsafe fn pipeline<const R: usize, const MINIMA: bool>(product: &CellProduct, codes: *const bf16) {
    let (format, blocks) = (product.format, product.blocks);
    let mut dots = [const { MaybeUninit::<Dots>::uninit() }; 2];
    let dots: [*mut f32; 2] = [dots[0].as_mut_ptr().cast(), dots[1].as_mut_ptr().cast()];
    let mut sums = [_mm512_setzero_ps(); R];
    let mut multiplied = Place::default();
    let mut scaled = Place::default();
    // All tiles of rows pass through without a break.
    let end = product.rows.div_ceil(TILE_ROWS) * blocks;
    // SAFETY: the caller's promise; a tile fits in its dots.
    unsafe {
        for now in 0..end + SCALED_AFTER {
            if (STORED_AFTER..end + STORED_AFTER).contains(&now) {
                match now % 2 {
                    0 => tiles::store::<0>(dots[0]),
                    _ => tiles::store::<1>(dots[1]),
                }
            }
            if now < end {
                let left = product.a.add(multiplied.tile * product.a_tile_stride + multiplied.block * TILE);
                let right = codes.add(multiplied.block * TILE);
                match now % 2 {
                    0 => tiles::multiply::<0>(left, right),
                    _ => tiles::multiply::<1>(left, right),
                }
                multiplied.advance(blocks);
            }
            if now < SCALED_AFTER {
                continue;
            }
            let Place { tile, block } = scaled;
            let (c, rows) = (product.c.add(tile * TILE_ROWS * product.c_stride), product.rows - tile * TILE_ROWS);
            if block == 0 {
                for row in 0..R {
                    let resumed = product.resume && row < rows;
                    sums[row] =
                        if resumed { _mm512_loadu_ps(c.add(row * product.c_stride)) } else { _mm512_setzero_ps() };
                }
            }
            let dots = dots[(now - SCALED_AFTER) % 2];
            let scales = product.cells.add(block * format.cell_bytes() + format.code_bytes());
            let scale = sixteen(format.scales, scales);
            for row in 0..R {
                sums[row] = _mm512_fmadd_ps(_mm512_load_ps(dots.add(row * LANES)), scale, sums[row]);
            }
            if MINIMA {
                let minimum = sixteen(format.scales, scales.add(format.scale_bytes()));
                let row_sums = product.sums.add(tile * product.sums_tile_stride + block * TILE_ROWS);
                for row in 0..R {
                    sums[row] = _mm512_fmadd_ps(minimum, _mm512_set1_ps(*row_sums.add(row)), sums[row]);
                }
            }
            if block + 1 == blocks {
                for row in 0..R {
                    if row < rows {
                        _mm512_storeu_ps(c.add(row * product.c_stride), sums[row]);
                    }
                }
            }
            scaled.advance(blocks);
        }
    }
}

/// A tile of rows, and a block of k.
#[derive(Clone, Copy, Default)]
struct Place {
    tile: usize,
    block: usize,
}

impl Place {
    #[inline(always)]
    fn advance(&mut self, blocks: usize) {
        self.block += 1;
        if self.block == blocks {
            *self = Self { tile: self.tile + 1, block: 0 };
        }
    }
}
