//! The items of a projection whose weights are cells.

use std::ops::Range;

use half::bf16;

use super::blocks::{CellBlocks, PanelCells};
use super::buffers::QuantBuffers;
use super::cells::Cells;
#[cfg(target_arch = "x86_64")]
use super::few_rows;
#[cfg(target_arch = "x86_64")]
use super::format::Format;
use super::format::{CodeWidth, GROUP};
use super::product::{CellProduct, FEW_ROWS};
use super::row_sums::row_sums;
use super::{integers, superblock};
use crate::cpu::gemm::GemmItem;
use crate::cpu::lanes::{LANES, Lanes};
use crate::cpu::pairs::{TILE, TILE_ROWS, tile_stride};

/// Panels whose sums are kept side by side, so that gate and up meet.
pub(super) const PANELS: usize = 2;
/// Cells that are expanded at a time, at most: 24 KiB stay in the first-level cache while the rows pass by.
pub(super) const SLICE_BLOCKS: usize = 24;

/// All sums of an item, handed to its `finish` row by row. `left` has the item's rows in tile order.
#[inline(always)]
pub(crate) fn multiply<L: Lanes>(
    item: &GemmItem<'_, bf16>,
    cells: &Cells,
    left: *const bf16,
    buffers: &mut QuantBuffers,
) {
    let (rows, blocks) = (item.rows.len(), cells.blocks());
    if cells.has_minima(item.panels.clone()) && buffers.must_sum(&item.rows) {
        // SAFETY: `left` has all blocks of whole tiles of rows.
        unsafe { row_sums::<L, 1>(left, rows, blocks, buffers.block_sums.as_mut_slice()) };
    }
    let has_groups = item.panels.clone().any(|panel| cells.format(panel).is_some());
    let from_codes = L::WORD_TABLES && rows <= FEW_ROWS && has_groups;
    if from_codes {
        widen::<L>(&item.rows, left, blocks, buffers);
    }
    for first in item.panels.clone().step_by(PANELS) {
        let panels = PANELS.min(item.panels.end - first);
        superblock::multiply::<L>(cells, first..first + panels, left, &item.rows, buffers);
        integers::multiply::<L>(cells, first..first + panels, left, &item.rows, buffers);
        #[cfg(target_arch = "x86_64")]
        if from_codes {
            for panel in 0..panels {
                let Some(format) = cells.format(first + panel) else { continue };
                few_from_codes(format, cells, (first + panel, panel), left, rows, buffers);
            }
            item.finish::<L>(item.rows.clone(), first..first + panels, buffers.sums.as_slice(), PANELS * LANES);
            continue;
        }
        if !L::TILES && rows > FEW_ROWS {
            let second = if panels == PANELS { panel_cells(cells, first + 1) } else { None };
            match (panel_cells(cells, first), second) {
                (Some(one), Some(other)) if one.format.minima == other.format.minima => {
                    in_blocks::<L, 2>([one, other], 0, blocks, left, rows, buffers);
                }
                (one, other) => {
                    for (place, panel) in [one, other].into_iter().enumerate() {
                        if let Some(panel) = panel {
                            in_blocks::<L, 1>([panel], place, blocks, left, rows, buffers);
                        }
                    }
                }
            }
            item.finish::<L>(item.rows.clone(), first..first + panels, buffers.sums.as_slice(), PANELS * LANES);
            continue;
        }
        let slice_blocks = blocks.div_ceil(blocks.div_ceil(SLICE_BLOCKS));
        for slice in (0..blocks).step_by(slice_blocks) {
            let slice = slice..blocks.min(slice + slice_blocks);
            for panel in 0..panels {
                let Some(format) = cells.format(first + panel) else { continue };
                let codes = (format.width != CodeWidth::Eight || rows > FEW_ROWS).then(|| {
                    let tiles = buffers.tiles();
                    cells.expand::<L>(first + panel, slice.clone(), tiles);
                    tiles.as_ptr().cast::<bf16>()
                });
                // SAFETY: `left` and the block sums have all blocks of whole tiles of rows; the sums have all rows.
                let (a, sums) = unsafe {
                    let sums = buffers.block_sums.as_slice().as_ptr();
                    (left.add(slice.start * TILE), sums.add(slice.start * TILE_ROWS))
                };
                L::call(CellProduct {
                    rows,
                    blocks: slice.len(),
                    a,
                    a_tile_stride: tile_stride(blocks),
                    format,
                    cells: cells.cell(first + panel, slice.start),
                    codes,
                    ahead: Some(next_cells(cells, first + panel, first..first + panels, &slice)),
                    sums,
                    sums_tile_stride: blocks * TILE_ROWS,
                    c: buffers.sums.as_mut_slice()[panel * LANES..].as_mut_ptr(),
                    c_stride: PANELS * LANES,
                    resume: slice.start > 0,
                });
            }
        }
        item.finish::<L>(item.rows.clone(), first..first + panels, buffers.sums.as_slice(), PANELS * LANES);
    }
}

/// What is expanded after a slice of a panel, one of some that are multiplied side by side: the same slice of the next one, their
/// next slice, or what follows them.
fn next_cells(cells: &Cells, panel: usize, panels: Range<usize>, slice: &Range<usize>) -> *const u8 {
    let is_expanded = |panel: &usize| cells.format(*panel).is_some();
    match (panel + 1..panels.end).find(is_expanded) {
        Some(next) => cells.near(next, slice.start),
        None if slice.end < cells.blocks() => cells.near(panels.clone().find(is_expanded).unwrap_or(panel), slice.end),
        None => cells.near(panels.end, 0),
    }
}

/// `None` for panels that are kept otherwise.
fn panel_cells(cells: &Cells, panel: usize) -> Option<PanelCells<'_>> {
    let format = cells.format(panel)?;
    Some(PanelCells { format, table: cells.table(panel), cells: cells.cell(panel, 0) })
}

/// Sums of whole panels go to their places among those at hand.
#[inline(always)]
fn in_blocks<L: Lanes, const P: usize>(
    panels: [PanelCells<'_>; P],
    place: usize,
    blocks: usize,
    left: *const bf16,
    rows: usize,
    buffers: &mut QuantBuffers,
) {
    let sums = &mut buffers.sums.as_mut_slice()[place * LANES..];
    assert!(place + P <= PANELS && sums.len() >= (rows - 1) * PANELS * LANES + P * LANES);
    // All blocks of whole tiles of rows and of the panels, and rows of sums.
    L::call(CellBlocks {
        rows,
        blocks,
        a: left,
        a_tile_stride: tile_stride(blocks),
        panels,
        sums: buffers.block_sums.as_slice().as_ptr(),
        sums_tile_stride: blocks * TILE_ROWS,
        c: sums.as_mut_ptr(),
        c_stride: PANELS * LANES,
    });
}

/// A whole panel at once: what is not expanded needs no slices. Its sums go to their place among the panels at hand.
#[cfg(target_arch = "x86_64")]
fn few_from_codes(
    format: Format,
    cells: &Cells,
    (panel, place): (usize, usize),
    left: *const bf16,
    rows: usize,
    buffers: &mut QuantBuffers,
) {
    let sums = &mut buffers.sums.as_mut_slice()[place * LANES..];
    assert!(sums.len() >= (rows - 1) * PANELS * LANES + LANES);
    let product = CellProduct {
        rows,
        blocks: cells.blocks(),
        a: left,
        a_tile_stride: 0,
        format,
        cells: cells.cell(panel, 0),
        codes: None,
        ahead: None,
        sums: buffers.block_sums.as_slice().as_ptr(),
        sums_tile_stride: 0,
        c: sums.as_mut_ptr(),
        c_stride: PANELS * LANES,
        resume: false,
    };
    let x = buffers.widened.as_slice().as_ptr();
    // SAFETY: all blocks of the rows and of the panel, and rows of sums; the lanes have said what the machine has.
    unsafe {
        match rows {
            1 => few_rows::few_rows::<1>(&product, x, cells.table(panel)),
            _ => few_rows::few_rows::<FEW_ROWS>(&product, x, cells.table(panel)),
        }
    }
}

/// `[block][row][even k, then odd k]` in f32.
#[inline(always)]
pub(super) fn widen<L: Lanes>(rows: &Range<usize>, left: *const bf16, blocks: usize, buffers: &mut QuantBuffers) {
    if !buffers.must_widen(rows) {
        return;
    }
    let rows = rows.len();
    let widened = &mut buffers.widened.as_mut_slice()[..blocks * rows * GROUP];
    for (i, wide) in widened.chunks_exact_mut(GROUP).enumerate() {
        // SAFETY: a row of a block of the first tile of rows; half of its k fill a vector.
        unsafe {
            let from = left.add(i / rows * TILE + i % rows * GROUP).cast();
            L::load_bf16_even(from).store(wide.as_mut_ptr());
            L::load_bf16_odd(from).store(wide.as_mut_ptr().add(GROUP / 2));
        }
    }
}

#[cfg(test)]
mod tests {
    use baton_model::Dtype;

    use super::super::cells::{CodeProducts, Kept};
    use super::*;
    use crate::cpu::chunks::Chunks;

    #[test]
    fn what_comes_next_is_asked_for() {
        let kept = [Dtype::Q4_1, Dtype::Q6K, Dtype::Q8_0, Dtype::Q5_0]
            .map(|dtype| Kept::of(dtype, CodeProducts::Pairs).unwrap());
        let cells = Cells::new(&mut Chunks::default(), &kept, 1536).unwrap();
        for (panel, panels, slice, next) in [
            // Beside a supercell, which is no business of these products.
            (0, 0..2, 0..24, (0, 24)),
            (0, 0..2, 24..48, (2, 0)),
            (2, 2..4, 0..24, (3, 0)),
            (3, 2..4, 0..24, (2, 24)),
            (2, 2..4, 24..48, (3, 24)),
            (3, 2..4, 24..48, (4, 0)),
        ] {
            let got = next_cells(&cells, panel, panels, &slice);
            assert_eq!(got, cells.near(next.0, next.1), "behind {slice:?} of {panel}");
        }
    }
}
