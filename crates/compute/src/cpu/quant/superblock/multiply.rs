//! The panels of an item whose weights are supercells.

use std::ops::Range;

use half::bf16;

use super::expand::{Expand, SUPER_TILES};
use super::few_rows::FewRows;
use super::scale::Scale;
use super::{SUPER_DEPTH, Superblocks};
use crate::cpu::lanes::{LANES, Lanes};
use crate::cpu::pairs::{PairsProduct, Passing, TILE, TILE_ROWS, tile_stride};
use crate::cpu::quant::buffers::QuantBuffers;
use crate::cpu::quant::cells::Cells;
use crate::cpu::quant::multiply::{PANELS, SLICE_BLOCKS, widen};
use crate::cpu::quant::product::FEW_ROWS;
use crate::cpu::quant::row_sums::row_sums;

/// Rows of one product: two tiles.
const PRODUCT_ROWS: usize = 2 * TILE_ROWS;
const SUMS_STRIDE: usize = PANELS * LANES;

/// Products of one supercell before they are scaled: `[row][panel][column]`.
#[repr(align(64))]
struct Dots([f32; PRODUCT_ROWS * SUMS_STRIDE]);

/// Rows on the left, in tile order.
#[derive(Clone, Copy)]
struct Left {
    tiles: *const bf16,
    rows: usize,
    /// Of 32 k.
    blocks: usize,
}

/// One panel of supercells, and which of the panels whose sums are side by side it is.
#[derive(Clone, Copy)]
struct Panel {
    kind: Superblocks,
    first: *const u8,
    place: usize,
}

/// Writes the sums of those of the panels, [`PANELS`] at most, that are supercells. All rows are in `rows` on the left.
#[inline(always)]
pub(in crate::cpu::quant) fn multiply<L: Lanes>(
    cells: &Cells,
    panels: Range<usize>,
    tiles: *const bf16,
    rows: &Range<usize>,
    buffers: &mut QuantBuffers,
) {
    let of = |place: usize| {
        let panel = panels.start + place;
        let kind = if panel < panels.end { cells.superblocks(panel)? } else { return None };
        Some(Panel { kind, first: cells.cell(panel, 0), place })
    };
    let left = Left { tiles, rows: rows.len(), blocks: cells.blocks() };
    let (found, other) = match (of(0), of(1)) {
        (Some(first), second) => (first, second),
        (None, Some(second)) => (second, None),
        (None, None) => return,
    };
    if [Some(found), other].into_iter().flatten().any(|panel| panel.kind.has_minima()) && buffers.must_sum_halves(rows)
    {
        // SAFETY: all blocks of whole tiles of rows.
        unsafe { row_sums::<L, 2>(left.tiles, left.rows, left.blocks, buffers.half_sums.as_mut_slice()) };
    }
    if left.rows <= FEW_ROWS {
        widen::<L>(rows, tiles, left.blocks, buffers);
        for panel in [Some(found), other].into_iter().flatten() {
            few_rows::<L>(left, panel, buffers);
        }
    } else {
        match other {
            Some(other) => many_rows::<L, 2>(left, [found, other], buffers),
            None => many_rows::<L, 1>(left, [found], buffers),
        }
    }
}

#[inline(always)]
fn few_rows<L: Lanes>(left: Left, panel: Panel, buffers: &mut QuantBuffers) {
    match (panel.kind, left.rows) {
        (Superblocks::Two, 1) => from_codes::<L, 1, 2>(left, panel, buffers),
        (Superblocks::Three, 1) => from_codes::<L, 1, 3>(left, panel, buffers),
        (Superblocks::Six, 1) => from_codes::<L, 1, 6>(left, panel, buffers),
        (Superblocks::Two, _) => from_codes::<L, FEW_ROWS, 2>(left, panel, buffers),
        (Superblocks::Three, _) => from_codes::<L, FEW_ROWS, 3>(left, panel, buffers),
        (Superblocks::Six, _) => from_codes::<L, FEW_ROWS, 6>(left, panel, buffers),
    }
}

#[inline(always)]
fn from_codes<L: Lanes, const R: usize, const BITS: usize>(left: Left, panel: Panel, buffers: &mut QuantBuffers) {
    let sums = &mut buffers.sums.as_mut_slice()[panel.place * LANES..];
    assert!(left.rows == R && sums.len() >= (R - 1) * SUMS_STRIDE + LANES);
    // All blocks of the rows, a whole panel, and rows of sums.
    L::call(FewRows::<R, BITS> {
        supercells: left.blocks / SUPER_TILES,
        x: buffers.widened.as_slice().as_ptr().cast(),
        cells: panel.first,
        half_sums: buffers.half_sums.as_slice().as_ptr(),
        c: sums.as_mut_ptr(),
        c_stride: SUMS_STRIDE,
    });
}

/// A supercell is expanded, all rows pass by, then the next one.
#[inline(always)]
fn many_rows<L: Lanes, const P: usize>(left: Left, panels: [Panel; P], buffers: &mut QuantBuffers) {
    const { assert!(P * SUPER_TILES <= SLICE_BLOCKS) };
    let tiles = buffers.tiles().as_mut_ptr().cast::<bf16>();
    let half_sums = buffers.half_sums.as_slice().as_ptr();
    let sums = buffers.sums.as_mut_slice();
    assert!(sums.len() >= left.rows * SUMS_STRIDE);
    let mut dots = Dots([0.0; PRODUCT_ROWS * SUMS_STRIDE]);
    for number in 0..left.blocks / SUPER_TILES {
        for (at, panel) in panels.iter().enumerate() {
            // SAFETY: the buffer holds the tiles of `P` supercells.
            expand::<L>(panel, number, unsafe { tiles.add(at * SUPER_TILES * TILE) });
        }
        for row in (0..left.rows).step_by(PRODUCT_ROWS) {
            let rows = PRODUCT_ROWS.min(left.rows - row);
            let block = row / TILE_ROWS * left.blocks + number * SUPER_TILES;
            L::call(PairsProduct {
                rows,
                panels: P,
                pairs: SUPER_DEPTH / 2,
                // SAFETY: whole tiles of rows with all blocks.
                a: unsafe { left.tiles.add(row / TILE_ROWS * tile_stride(left.blocks) + number * SUPER_TILES * TILE) },
                a_tile_stride: tile_stride(left.blocks),
                b: tiles,
                b_pair_stride: 2 * LANES,
                b_panel_stride: SUPER_TILES * TILE,
                ahead: None,
                passing: Passing::Left,
                c: dots.0.as_mut_ptr(),
                c_stride: SUMS_STRIDE,
                resume: false,
            });
            for (at, panel) in panels.iter().enumerate() {
                // SAFETY: inside the products, the sums of halves and the sums.
                let (dots, half_sums, c) = unsafe {
                    let c = sums.as_mut_ptr().add(row * SUMS_STRIDE + panel.place * LANES);
                    (dots.0.as_ptr().add(at * LANES), half_sums.add(block * 2 * TILE_ROWS), c)
                };
                scale::<L>(panel, number, rows, dots, half_sums, left.blocks * 2 * TILE_ROWS, c);
            }
        }
    }
}

impl Panel {
    #[inline(always)]
    fn cell(&self, number: usize) -> *const u8 {
        self.first.wrapping_add(number * self.kind.cell_bytes())
    }
}

#[inline(always)]
fn expand<L: Lanes>(panel: &Panel, number: usize, tiles: *mut bf16) {
    let cell = panel.cell(number);
    match panel.kind {
        Superblocks::Two => L::call(Expand::<2> { cell, tiles }),
        Superblocks::Three => L::call(Expand::<3> { cell, tiles }),
        Superblocks::Six => L::call(Expand::<6> { cell, tiles }),
    }
}

#[inline(always)]
fn scale<L: Lanes>(
    panel: &Panel,
    number: usize,
    rows: usize,
    dots: *const f32,
    half_sums: *const f32,
    half_sums_tile_stride: usize,
    c: *mut f32,
) {
    macro_rules! scale {
        ($bits:literal) => {
            L::call(Scale::<$bits> {
                rows,
                cell: panel.cell(number),
                dots,
                dots_stride: SUMS_STRIDE,
                half_sums,
                half_sums_tile_stride,
                c,
                c_stride: SUMS_STRIDE,
                resume: number > 0,
            })
        };
    }
    match panel.kind {
        Superblocks::Two => scale!(2),
        Superblocks::Three => scale!(3),
        Superblocks::Six => scale!(6),
    }
}
