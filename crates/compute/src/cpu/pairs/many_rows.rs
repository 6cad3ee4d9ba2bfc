//! Many rows: all of an item's pass by one pair of panels after the other.

use std::ops::Range;

use half::bf16;

use super::ahead::Ahead;
use super::passes::{Pass, PassBlocks, Passes, Waiting};
use super::product::{Between, PairsProduct, Passing};
use super::sums::Sums;
use super::tile_rows::{BLOCK_DEPTH, TILE, TILE_ROWS, TileRows, tile_stride};
use super::{LONG_PASSES, NEAR_PRODUCTS, PRODUCT_PANELS, PRODUCT_ROWS, SLICED_PANELS};
use crate::cpu::gemm::GemmItem;
use crate::cpu::lanes::{LANES, Lanes};
use crate::cpu::tile_reader::TileReader;
use crate::cpu::weights::Matrix;

/// Products that ask for one panel between them, where passes are equally long.
const PANEL_PRODUCTS: usize = Ahead::steps(1);
/// In which a product is computed while other work is done: 4 rows each.
#[cfg(target_arch = "x86_64")]
const PARTS: usize = 8;

/// All sums of an item, handed to its `finish`. `left` has the item's rows in tile order.
#[inline(always)]
pub(super) fn many_rows<L: Lanes>(item: &GemmItem<'_, bf16>, left: *const bf16, packed: &mut TileRows) {
    let matrix = &item.weights.matrix;
    let blocks = matrix.depth().div_ceil(BLOCK_DEPTH);
    let products = item.rows.len().div_ceil(PRODUCT_ROWS);
    let (passing, pass_blocks) = match products {
        NEAR_PRODUCTS.. => (Passing::Left, PassBlocks::near(blocks)),
        _ => (Passing::Neither, LONG_PASSES),
    };
    let mut passes = Passes::new(item.panels.clone(), blocks, pass_blocks);
    let mut half = 0;
    let mut expanding = Expanding::of_next(&passes, matrix, packed, half);
    let mut before = None;
    while let Some(pass) = passes.next() {
        let right = match expanding.take() {
            Some(mut expanding) => {
                expanding.go_on::<L>(1, 1);
                Right { b: expanding.to, panel_stride: pass.blocks.len() * TILE }
            }
            None => Right::of(item, &pass),
        };
        half = 1 - half;
        expanding = Expanding::of_next(&passes, matrix, packed, half);
        let next = passes.clone().next().map(|pass| (pass.panels.start, pass.blocks));
        let next = next.unwrap_or_else(|| (item.panels.end, 0..blocks.min(pass_blocks.pass)));
        for product in 0..products {
            let row = product * PRODUCT_ROWS;
            let place = match pass.waiting {
                // Tiles are stored when what lies in the first place has been finished.
                Waiting::None => 0,
                Waiting::Near => product,
                Waiting::InGroup(place) => product * SLICED_PANELS / PRODUCT_PANELS + place,
            };
            let rows = item.rows.start + row..item.rows.end.min(item.rows.start + row + PRODUCT_ROWS);
            let sums = Sums { rows, panels: pass.panels.clone(), c: packed.sums(place) };
            // SAFETY: `left` has all blocks of whole tiles of rows.
            let a = unsafe { left.add(row / TILE_ROWS * tile_stride(blocks)) };
            let meanwhile = Meanwhile {
                item,
                before,
                after: (pass.blocks.end == blocks).then(|| (sums.rows.clone(), sums.panels.clone())),
                expanding: expanding.as_mut(),
                next: &next,
                passing,
                product,
                products,
            };
            before = multiply::<L>(item, a, &right, sums, &pass, meanwhile);
        }
    }
    if let Some(before) = before {
        before.finish::<L>(item, 0..before.rows.len());
    }
}

/// Tiles of a pass: blocks of a panel follow each other.
struct Right {
    b: *const bf16,
    panel_stride: usize,
}

impl Right {
    fn of(item: &GemmItem<'_, bf16>, pass: &Pass) -> Self {
        let matrix = &item.weights.matrix;
        let b = matrix.panel(pass.panels.start).wrapping_add(pass.blocks.start * TILE);
        Self { b, panel_stride: matrix.panel_stride() }
    }
}

/// What the next pass multiplies with, expanded little by little.
struct Expanding<'a> {
    reader: TileReader<'a>,
    to: *mut bf16,
    pass: Pass,
}

impl<'a> Expanding<'a> {
    /// Into one half of the buffer; `None` where there is nothing more to expand, or nothing at all.
    fn of_next(passes: &Passes, matrix: &'a Matrix<bf16>, packed: &mut TileRows, half: usize) -> Option<Self> {
        let pass = passes.clone().next()?;
        let reader = matrix.reader(pass.panels.clone(), pass.blocks.start)?;
        Some(Self { reader, to: packed.expanded(half, pass.tiles()), pass })
    }

    /// Until so many of all parts are done.
    #[inline(always)]
    fn go_on<L: Lanes>(&mut self, parts: usize, all: usize) {
        let (first, blocks) = (self.pass.blocks.start, self.pass.blocks.len());
        while self.reader.block() < first + blocks * parts / all {
            // SAFETY: `to` has room for all tiles of the pass.
            unsafe { self.reader.next::<L>(self.to.add((self.reader.block() - first) * TILE), blocks * TILE) };
        }
    }
}

/// Work that is done while a product waits for memory.
struct Meanwhile<'a, 'e> {
    item: &'a GemmItem<'a, bf16>,
    /// Sums to be finished.
    before: Option<Sums>,
    /// Rows and panels of this product, where its sums are the last ones.
    after: Option<(Range<usize>, Range<usize>)>,
    expanding: Option<&'a mut Expanding<'e>>,
    /// First panel, and blocks, of the next pass, or of the next item's first one.
    next: &'a (usize, Range<usize>),
    passing: Passing,
    /// Of so many that share the expanding.
    product: usize,
    products: usize,
}

impl Meanwhile<'_, '_> {
    /// While the first rows pass by, so many blocks at a time, what comes next is asked for: both panels, if whole ones follow each
    /// other, or their parts in turn. Where it is longer than what passes, not all of it is, and where it is shorter some twice.
    #[inline(always)]
    fn ahead(&self, matrix: &Matrix<bf16>, blocks: usize) -> Option<Ahead> {
        let (first, asked) = self.next;
        if !matrix.is_plain() || *first >= matrix.panels() {
            return None;
        }
        let of_panel = Ahead::steps(asked.len());
        let panels = PRODUCT_PANELS.min(matrix.panels() - first);
        let follow_each_other = asked.len() * BLOCK_DEPTH >= matrix.depth();
        let (panel, step) = match self.product.checked_sub(PANEL_PRODUCTS) {
            Some(product) if !follow_each_other => (1, product * blocks),
            _ => (0, self.product * blocks),
        };
        (panel * of_panel + step < panels * of_panel)
            .then(|| Ahead { of: matrix.panel(first + panel).wrapping_add(asked.start * TILE), step })
    }

    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    fn is_idle(&self) -> bool {
        self.before.is_none() && self.after.is_none() && self.expanding.is_none()
    }
}

impl Between for Meanwhile<'_, '_> {
    #[inline(always)]
    fn part<L: Lanes>(&mut self, part: usize, parts: usize) {
        if let Some(before) = &self.before {
            let all = before.rows.len();
            before.finish::<L>(self.item, all * part / parts..all * (part + 1) / parts);
        }
        if let Some((rows, panels)) = &self.after {
            let all = rows.len();
            self.item.ask_for::<L>(rows.start + all * part / parts..rows.start + all * (part + 1) / parts, panels);
        }
        if let Some(expanding) = &mut self.expanding {
            expanding.go_on::<L>(self.product * parts + part + 1, self.products * parts);
        }
    }
}

/// One product over some blocks of k. Its sums are finished behind the last ones: at once, or by the next product while its
/// tiles are multiplied.
#[inline(always)]
fn multiply<L: Lanes>(
    item: &GemmItem<'_, bf16>,
    left: *const bf16,
    right: &Right,
    sums: Sums,
    pass: &Pass,
    mut meanwhile: Meanwhile<'_, '_>,
) -> Option<Sums> {
    let matrix = &item.weights.matrix;
    let all_blocks = matrix.depth().div_ceil(BLOCK_DEPTH);
    let (panels, blocks) = (&pass.panels, &pass.blocks);
    let is_last = blocks.end == all_blocks;
    let rows = sums.rows.len();
    let of_blocks = PairsProduct {
        rows,
        panels: panels.len(),
        pairs: blocks.len() * BLOCK_DEPTH / 2,
        // SAFETY: inside the rows.
        a: unsafe { left.add(blocks.start * TILE) },
        a_tile_stride: tile_stride(all_blocks),
        b: right.b,
        b_pair_stride: Matrix::<bf16>::PAIR_STRIDE,
        b_panel_stride: right.panel_stride,
        ahead: meanwhile.ahead(matrix, blocks.len()),
        passing: meanwhile.passing,
        c: sums.c,
        c_stride: PRODUCT_PANELS * LANES,
        resume: blocks.start > 0,
    };
    #[cfg(target_arch = "x86_64")]
    if L::TILES
        && (item.is_gated() || meanwhile.products > 1 || meanwhile.expanding.is_some())
        && rows > TILE_ROWS
        && panels.len() == PRODUCT_PANELS
    {
        // Each part costs a little.
        let parts = if meanwhile.is_idle() { 1 } else { PARTS };
        of_blocks.in_parts::<L>(parts, &mut meanwhile);
        return is_last.then_some(sums);
    }
    meanwhile.part::<L>(0, 1);
    L::call(of_blocks);
    if is_last {
        sums.finish::<L>(item, 0..rows);
    }
    None
}
