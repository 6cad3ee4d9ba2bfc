//! Many rows: all of an item's pass by one pair of panels after the other.

use half::bf16;

use super::ahead::Ahead;
use super::meanwhile::{Expanding, Meanwhile};
use super::passes::{Pass, PassBlocks, Passes, SumsAt};
use super::product::{PairsProduct, Passing};
use super::tile_rows::{BLOCK_DEPTH, TILE, TILE_ROWS, TileRows, tile_stride};
use super::{LONG_PASSES, NEAR_PRODUCTS, PRODUCT_PANELS, PRODUCT_ROWS, PRODUCT_SUMS};
use crate::cpu::gemm::GemmItem;
use crate::cpu::lanes::{LANES, Lanes};
use crate::cpu::weights::Matrix;

/// All sums of an item, handed to its `finish`. `left` has the item's rows in tile order.
#[inline(always)]
pub(super) fn many_rows<L: Lanes>(item: &GemmItem<'_, bf16>, left: *const bf16, packed: &mut TileRows) {
    let matrix = &item.weights.matrix;
    let (rows, blocks) = (item.rows.len(), matrix.depth().div_ceil(BLOCK_DEPTH));
    let products = rows.div_ceil(PRODUCT_ROWS);
    let (passing, of) = match products {
        NEAR_PRODUCTS.. => (Passing::Left, PassBlocks::near(blocks)),
        _ => (Passing::Neither, LONG_PASSES),
    };
    let is_own = |pass: &Pass| pass.panels.start < item.panels.end;
    // Behind the last one comes the next item's first.
    let next_items = Passes::new(item.panels.end..matrix.panels(), blocks, of);
    let mut passes = Passes::new(item.panels.clone(), blocks, of).chain(next_items);
    let (mut now, mut next) = (passes.next(), passes.next());
    let mut meanwhile = Meanwhile::new(item);
    let (mut half, mut place) = (0, 0);
    if let Some(pass) = &now {
        meanwhile.expanding = Expanding::new(pass, matrix, packed.expanded(half, pass.blocks.len()), 0);
    }
    while let Some(pass) = now.take_if(|pass| is_own(pass)) {
        let after_next = passes.next();
        let steps = products * pass.blocks.len();
        let (b, b_panel_stride) = match meanwhile.expanding.take() {
            Some(expanding) => (expanding.complete::<L>(), pass.blocks.len() * TILE),
            None => (matrix.panel(pass.panels.start).wrapping_add(pass.blocks.start * TILE), matrix.panel_stride()),
        };
        half = 1 - half;
        if let Some(next) = next.as_ref().filter(|pass| is_own(pass)) {
            meanwhile.expanding = Expanding::new(next, matrix, packed.expanded(half, next.blocks.len()), steps);
        }
        meanwhile.ahead = ahead(matrix, next.as_ref(), after_next.as_ref());
        let is_last = pass.blocks.end == blocks;
        let pair_sums = match pass.sums {
            SumsAt::Pair(place) => {
                meanwhile.finish_within(steps, meanwhile.unfinished().div_ceil(pass.left));
                Some(packed.sums(place * products, products))
            }
            // One product's sums are finished while the next one's are computed.
            SumsAt::Product => {
                meanwhile.finish_within(pass.blocks.len(), PRODUCT_ROWS);
                None
            }
        };
        let first = PairsProduct {
            rows: PRODUCT_ROWS,
            panels: pass.panels.len(),
            pairs: pass.blocks.len() * BLOCK_DEPTH / 2,
            // SAFETY: `left` has all blocks of whole tiles of rows.
            a: unsafe { left.add(pass.blocks.start * TILE) },
            a_tile_stride: tile_stride(blocks),
            b,
            b_pair_stride: Matrix::<bf16>::PAIR_STRIDE,
            b_panel_stride,
            passing,
            c: packed.sums(0, 1),
            c_stride: PRODUCT_PANELS * LANES,
            resume: pass.blocks.start > 0,
        };
        // Of more than 16 rows each.
        let beside =
            if L::TILES && pass.panels.len() == PRODUCT_PANELS { (rows + TILE_ROWS - 1) / PRODUCT_ROWS } else { 0 };
        for product in 0..products {
            let row = product * PRODUCT_ROWS;
            // SAFETY: as above.
            let a = unsafe { first.a.add(row / TILE_ROWS * tile_stride(blocks)) };
            let c = match pair_sums {
                Some(sums) => {
                    let next = if product + 1 < products { product + 1 } else { 0 };
                    meanwhile.resume_next(sums.wrapping_add(next * PRODUCT_SUMS));
                    sums.wrapping_add(product * PRODUCT_SUMS)
                }
                None => {
                    place = 1 - place;
                    packed.sums(place, 1)
                }
            };
            if product < beside {
                PairsProduct { a, c, ..first }.run_beside::<L>(&mut meanwhile);
            } else {
                L::call(PairsProduct { rows: (rows - row).min(PRODUCT_ROWS), a, c, ..first });
            }
            if is_last && pair_sums.is_none() {
                let rows = item.rows.start + row..item.rows.end.min(item.rows.start + row + PRODUCT_ROWS);
                // SAFETY: the next product's go to the other place.
                unsafe { meanwhile.finish_next::<L>(rows, pass.panels.clone(), c) };
            }
        }
        if let Some(c) = pair_sums.filter(|_| is_last) {
            // SAFETY: of all rows, one after the other; the next pair's go to another place.
            unsafe { meanwhile.finish_next::<L>(item.rows.clone(), pass.panels, c) };
        }
        (now, next) = (next, after_next);
    }
    meanwhile.finish_all::<L>();
}

/// Both panels of the next pass. They follow each other, if all of their blocks are a pass.
fn ahead(matrix: &Matrix<bf16>, next: Option<&Pass>, after_next: Option<&Pass>) -> Ahead {
    let Some(next) = next.filter(|_| matrix.is_plain()) else { return Ahead::nothing() };
    let place = |panel: usize, block: usize| matrix.panel(panel).wrapping_add(block * TILE);
    let then = after_next.map_or(place(matrix.panels(), 0), |pass| place(pass.panels.start, pass.blocks.start));
    let (first, block) = (next.panels.start, next.blocks.start);
    let panel_bytes = next.blocks.len() * TILE * size_of::<bf16>();
    let are_whole = next.blocks.len() * BLOCK_DEPTH >= matrix.depth();
    if are_whole || next.panels.len() < PRODUCT_PANELS {
        return Ahead::new(place(first, block), None, next.panels.len() * panel_bytes, then);
    }
    Ahead::new(place(first, block), Some(place(first + 1, block)), panel_bytes, then)
}
