//! One or two rows times codes as they are read: nothing is expanded to memory.

#![allow(clippy::needless_range_loop, reason = "rows are numbers here; indexed loops unroll into registers")]

use half::bf16;

use super::super::buffers::{PANELS, QuantBuffers};
use super::super::cell_format::CellFormat;
use super::super::cells::Cells;
use super::expand::{by_bits, for_each_pair, weights};
use super::{MOST_FROM_CODES, PREFETCH_BYTES};
use crate::matmul::gemm::GemmItem;
use crate::simd::vector::{Kernel, LANES, Lanes};
use crate::weights::layout::GROUP;

const PAIRS: usize = GROUP / 2;

/// All sums of an item of at most [`MOST_FROM_CODES`], handed to its `finish`. `x` has its rows, [widened](crate::matmul::bf16).
#[inline(always)]
pub(crate) fn few_rows<L: Lanes>(item: &GemmItem<'_, bf16>, cells: &Cells, x: *const f32, buffers: &mut QuantBuffers) {
    let (rows, blocks) = (item.rows.len(), cells.blocks());
    assert!(rows <= MOST_FROM_CODES);
    for first in item.panels.clone().step_by(PANELS) {
        let panels = first..item.panels.end.min(first + PANELS);
        for (place, panel) in panels.clone().enumerate() {
            let (format, cells) = cells.panel(panel);
            let sums = &mut buffers.sums.as_mut_slice()[place * LANES..];
            assert!(sums.len() >= (rows - 1) * PANELS * LANES + LANES);
            // A whole panel, all blocks of the rows, and rows of sums.
            let product = Product { format, cells, blocks, x, c: sums.as_mut_ptr() };
            match rows {
                1 => L::call(OneRow(product)),
                _ => L::call(TwoRows(product)),
            }
        }
        item.finish::<L>(item.rows.clone(), panels, buffers.sums.as_slice(), PANELS * LANES);
    }
}

/// Pointers are good for what is stated: whoever makes one says why.
pub(super) struct Product {
    pub(super) format: CellFormat,
    pub(super) cells: *const u8,
    pub(super) blocks: usize,
    pub(super) x: *const f32,
    pub(super) c: *mut f32,
}

pub(super) struct OneRow(pub(super) Product);
pub(super) struct TwoRows(pub(super) Product);

impl Kernel for OneRow {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self) {
        multiply::<L, 1>(&self.0);
    }
}

impl Kernel for TwoRows {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self) {
        multiply::<L, 2>(&self.0);
    }
}

#[inline(always)]
fn multiply<L: Lanes, const R: usize>(product: &Product) {
    // SAFETY: the product's promise.
    unsafe { by_bits!(product.format.bits(), chains::<L, R>(product)) };
}

/// # Safety
/// Pointers are good.
#[inline(always)]
unsafe fn chains<L: Lanes, const R: usize, const BITS: usize>(product: &Product) {
    let zeros = [L::splat(0.0); R];
    let mut sums = zeros;
    let ahead = PREFETCH_BYTES / product.format.block_bytes();
    for block in 0..product.blocks {
        product.format.prefetch::<L>(product.cells, block + ahead);
        let (mut even, mut odd) = (zeros, zeros);
        // SAFETY: the caller's promise.
        unsafe {
            let (codes, scaled) = product.format.block::<L, BITS>(product.cells, block);
            let x = product.x.add(block * R * GROUP);
            for_each_pair!(L, |pair| {
                let [even_weights, odd_weights] = weights::<L, BITS>(codes, &scaled, pair);
                let (even_weights, odd_weights) = (even_weights.cut_to_bf16(), odd_weights.cut_to_bf16());
                for r in 0..R {
                    even[r] = L::splat(*x.add(r * GROUP + pair)).fma(even_weights, even[r]);
                    odd[r] = L::splat(*x.add(r * GROUP + PAIRS + pair)).fma(odd_weights, odd[r]);
                }
            });
        }
        for r in 0..R {
            sums[r] = sums[r].add(even[r].add(odd[r]));
        }
    }
    for r in 0..R {
        // SAFETY: rows of sums.
        unsafe { sums[r].store(product.c.add(r * PANELS * LANES)) };
    }
}
