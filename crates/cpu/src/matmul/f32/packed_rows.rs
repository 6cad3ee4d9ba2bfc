//! Rows of the left-hand side as the product reads them: tiles of up to 12 rows, each `[k][rows]`.

use std::ops::Range;

use super::product::MAX_TILE_ROWS;
use crate::matmul::multiply::Packed;
use crate::matmul::rows::LeftRows;
use crate::simd::vector::{Lanes, padded};
use baton_backend::BackendError;

/// Belongs to one member; keeps its rows from item to item of a phase.
#[derive(Default)]
pub(crate) struct PackedRows {
    tiles: Vec<f32>,
    /// Rows of one tile, side by side, before they are turned.
    staged: Vec<f32>,
    packed: Option<Range<usize>>,
}

impl Packed for PackedRows {
    /// Grows as it goes.
    fn new(_max_rows: usize, _depth: usize, _max_depth: usize) -> Result<Self, BackendError> {
        Ok(Self::default())
    }

    fn clear(&mut self) {
        self.packed = None;
    }
}

impl PackedRows {
    #[inline(always)]
    pub(crate) fn pack<L: Lanes>(&mut self, from: &LeftRows<'_, f32>, depth: usize, rows: Range<usize>) {
        if self.packed.as_ref() == Some(&rows) {
            return;
        }
        if self.tiles.len() < rows.len() * depth {
            self.tiles.resize(rows.len() * depth, 0.0);
        }
        for first in (0..rows.len()).step_by(MAX_TILE_ROWS) {
            let height = MAX_TILE_ROWS.min(rows.len() - first);
            let tile = &mut self.tiles[first * depth..][..height * depth];
            match from {
                LeftRows::Stored(from) => {
                    let stride = padded(from.width());
                    // SAFETY: rows of the buffer, written in an earlier phase.
                    let x = unsafe { std::slice::from_raw_parts(from.at_row(rows.start + first), height * stride) };
                    transpose(x, stride, depth, tile);
                }
                LeftRows::Normed(from) => {
                    let stride = from.stride;
                    if self.staged.len() < MAX_TILE_ROWS * stride {
                        self.staged.resize(MAX_TILE_ROWS * stride, 0.0);
                    }
                    for i in 0..height {
                        let staged = &mut self.staged[i * stride..][..stride];
                        from.norm.apply::<L>(from.row(rows.start + first + i), |column, normed| {
                            // SAFETY: a whole vector of the row.
                            unsafe { normed.store(staged[column..].as_mut_ptr()) };
                        });
                    }
                    transpose(&self.staged, stride, depth, tile);
                }
            }
        }
        self.packed = Some(rows);
    }

    /// The tile that begins at `row` of the packed ones: `depth` k of all its rows.
    #[inline(always)]
    pub(crate) fn tile(&self, row: usize, depth: usize) -> *const f32 {
        self.tiles[row * depth..].as_ptr()
    }
}

/// `tile[k][row] = x[row][k]` for as many rows as fit, in blocks of 4 × 4 where there are some.
#[inline(always)]
fn transpose(x: &[f32], stride: usize, depth: usize, tile: &mut [f32]) {
    let height = tile.len() / depth;
    assert!(depth <= stride && x.len() >= (height - 1) * stride + depth);
    let (blocked_rows, blocked_depth) = (height / 4 * 4, depth / 4 * 4);
    let mut row = 0;
    while row < blocked_rows {
        let mut k = 0;
        while k < blocked_depth {
            // SAFETY: four rows and four k of `x` and of the tile.
            unsafe {
                transpose_4x4(x.as_ptr().add(row * stride + k), stride, tile.as_mut_ptr().add(k * height + row), height)
            };
            k += 4;
        }
        row += 4;
    }
    for row in 0..height {
        let first = if row < blocked_rows { blocked_depth } else { 0 };
        for k in first..depth {
            tile[k * height + row] = x[row * stride + k];
        }
    }
}

/// # Safety
/// Four floats are readable at each of four rows of `from`, and writable at those of `to`.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
unsafe fn transpose_4x4(from: *const f32, from_stride: usize, to: *mut f32, to_stride: usize) {
    use std::arch::x86_64::*;
    // SAFETY: the caller's promise, and every x86-64 has the instructions.
    unsafe {
        let (a, b) = (_mm_loadu_ps(from), _mm_loadu_ps(from.add(from_stride)));
        let (c, d) = (_mm_loadu_ps(from.add(2 * from_stride)), _mm_loadu_ps(from.add(3 * from_stride)));
        let (ab_low, ab_high) = (_mm_unpacklo_ps(a, b), _mm_unpackhi_ps(a, b));
        let (cd_low, cd_high) = (_mm_unpacklo_ps(c, d), _mm_unpackhi_ps(c, d));
        _mm_storeu_ps(to, _mm_movelh_ps(ab_low, cd_low));
        _mm_storeu_ps(to.add(to_stride), _mm_movehl_ps(cd_low, ab_low));
        _mm_storeu_ps(to.add(2 * to_stride), _mm_movelh_ps(ab_high, cd_high));
        _mm_storeu_ps(to.add(3 * to_stride), _mm_movehl_ps(cd_high, ab_high));
    }
}

/// # Safety
/// Four floats are readable at each of four rows of `from`, and writable at those of `to`.
#[cfg(not(target_arch = "x86_64"))]
#[inline(always)]
unsafe fn transpose_4x4(from: *const f32, from_stride: usize, to: *mut f32, to_stride: usize) {
    for row in 0..4 {
        for k in 0..4 {
            // SAFETY: the caller's promise.
            unsafe { *to.add(k * to_stride + row) = *from.add(row * from_stride + k) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::matmul::arithmetic::LeftOperand;
    use crate::memory::shared::Shared;
    use crate::simd::isa::Isa;
    use crate::simd::vector::Kernel;

    struct Pack<'a>(&'a mut PackedRows, &'a LeftRows<'a, f32>, usize, Range<usize>);

    impl Kernel for Pack<'_> {
        type Output = ();

        #[inline(always)]
        fn run<L: Lanes>(self) {
            self.0.pack::<L>(self.1, self.2, self.3);
        }
    }

    #[test]
    fn tiles_hold_the_rows() {
        for (rows, depth) in [(1, 5), (2, 4), (7, 9), (12, 16), (31, 13)] {
            let stride = padded(depth);
            let mut x: Vec<f32> = (0..(rows + 2) * stride).map(|i| i as f32).collect();
            let mut packed = PackedRows::default();
            let expected = x.clone();
            let from = LeftRows::Stored(LeftOperand::new(Shared::new(&mut x), rows + 2, depth));
            Isa::Portable.run(Pack(&mut packed, &from, depth, 2..2 + rows));
            for row in 0..rows {
                let first = row / MAX_TILE_ROWS * MAX_TILE_ROWS;
                let height = MAX_TILE_ROWS.min(rows - first);
                for k in 0..depth {
                    // SAFETY: inside the tile.
                    let got = unsafe { *packed.tile(first, depth).add(k * height + row - first) };
                    assert_eq!(got, expected[(row + 2) * stride + k], "{rows} × {depth}: ({row}, {k})");
                }
            }
        }
    }
}
