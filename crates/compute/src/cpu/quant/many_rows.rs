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
    let dots: *mut f32 = dots.as_mut_ptr().cast();
    let mut sums = [_mm512_setzero_ps(); R];
    // All tiles of rows pass through without a break.
    let end = product.rows.div_ceil(TILE_ROWS) * blocks;
    // Pointers that move along take up to 7 % less time than places that are multiplied out.
    let first_scales = product.cells.wrapping_add(format.code_bytes());
    let (mut left, mut right, mut multiplied) = (product.a, codes, 0);
    let (mut scales, mut row_sums, mut c, mut scaled) = (first_scales, product.sums, product.c, 0);
    let mut rows = product.rows;
    let (mut ahead, mut asked) = product.ahead.map_or((product.cells, blocks), |ahead| (ahead, 0));
    // Rows and their sums have at least as many blocks.
    let (left_step, row_sums_step) =
        (product.a_tile_stride - blocks * TILE, product.sums_tile_stride - blocks * TILE_ROWS);
    macro_rules! step {
        ($now:expr, $parity:literal) => {
            let now = $now;
            if (STORED_AFTER..end + STORED_AFTER).contains(&now) {
                tiles::store::<$parity>(dots.add($parity * TILE_ROWS * LANES));
            }
            if now < end {
                tiles::multiply::<$parity>(left, right);
                (left, right, multiplied) = (left.wrapping_add(TILE), right.wrapping_add(TILE), multiplied + 1);
                // Once: the first tile of rows has as many products as there are cells.
                if asked < blocks {
                    for line in (0..format.cell_bytes()).step_by(64) {
                        _mm_prefetch::<_MM_HINT_T0>(ahead.wrapping_add(line).cast());
                    }
                    (ahead, asked) = (ahead.wrapping_add(format.cell_bytes()), asked + 1);
                }
                if multiplied == blocks {
                    (left, right, multiplied) = (left.wrapping_add(left_step), codes, 0);
                }
            }
            if (SCALED_AFTER..end + SCALED_AFTER).contains(&now) {
                if scaled == 0 {
                    for row in 0..R {
                        let resumed = product.resume && row < rows;
                        sums[row] =
                            if resumed { _mm512_loadu_ps(c.add(row * product.c_stride)) } else { _mm512_setzero_ps() };
                    }
                }
                let dots = dots.add((1 - $parity) * TILE_ROWS * LANES);
                let scale = sixteen(format.scales, scales);
                for row in 0..R {
                    sums[row] = _mm512_fmadd_ps(_mm512_load_ps(dots.add(row * LANES)), scale, sums[row]);
                }
                if MINIMA {
                    let minimum = sixteen(format.scales, scales.add(format.scale_bytes()));
                    for row in 0..R {
                        sums[row] = _mm512_fmadd_ps(minimum, _mm512_set1_ps(*row_sums.add(row)), sums[row]);
                    }
                }
                scales = scales.wrapping_add(format.cell_bytes());
                row_sums = row_sums.wrapping_add(TILE_ROWS);
                scaled += 1;
                if scaled == blocks {
                    for row in 0..R {
                        if row < rows {
                            _mm512_storeu_ps(c.add(row * product.c_stride), sums[row]);
                        }
                    }
                    (scales, scaled) = (first_scales, 0);
                    row_sums = row_sums.wrapping_add(row_sums_step);
                    c = c.wrapping_add(TILE_ROWS * product.c_stride);
                    rows = rows.saturating_sub(TILE_ROWS);
                }
            }
        };
    }
    // SAFETY: the caller's promise; a tile fits in its dots.
    unsafe {
        for now in (0..end + SCALED_AFTER).step_by(2) {
            step!(now, 0);
            step!(now + 1, 1);
        }
    }
}
