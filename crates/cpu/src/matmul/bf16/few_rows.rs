//! A few rows, multiplied with weights as these are read: nothing is expanded to memory.
//!
//! Also the matmul of attention where there are no tiles, with keys or values instead of weights.

#![allow(clippy::needless_range_loop, reason = "rows are numbers here; indexed loops unroll into registers")]

use half::bf16;

use super::sizes::PRODUCT_PANELS;
use super::tile_rows::TileRows;
use crate::matmul::gemm::GemmItem;
use crate::simd::vector::{Kernel, LANES, Lanes};
use crate::weights::Matrix;
use crate::weights::format::{PanelKernel, WeightFormat, for_each_pair};
use crate::weights::layout::{BLOCK_DEPTH, BLOCK_PAIRS, FEW_ROWS, TILE};

const SUMS_STRIDE: usize = PRODUCT_PANELS * LANES;

/// All sums of an item of at most [`FEW_ROWS`], handed to its `finish`. `left` has the item's rows in tile order.
#[inline(always)]
pub(super) fn few_rows<L: Lanes>(item: &GemmItem<'_, bf16>, left: *const bf16, packed: &mut TileRows) {
    let (matrix, rows) = (&item.weights.matrix, item.rows.len());
    assert!((1..=FEW_ROWS).contains(&rows));
    for first in item.panels.clone().step_by(PRODUCT_PANELS) {
        let panels = first..item.panels.end.min(first + PRODUCT_PANELS);
        let sums = packed.sums_of(rows, PRODUCT_PANELS);
        for (place, panel) in panels.clone().enumerate() {
            let c = sums[place * LANES..].as_mut_ptr();
            // Sound: `left` has all blocks of the item's rows, and the sums have `rows` × 2 panels, of which `c` is one.
            match rows {
                1 if L::TILES => L::call_without_tiles(FewRows::<1, true> { matrix, panel, left, c }),
                2 if L::TILES => L::call_without_tiles(FewRows::<2, true> { matrix, panel, left, c }),
                _ if L::TILES => unreachable!("{rows} rows are multiplied as tiles"),
                1 => L::call_without_tiles(FewRows::<1, false> { matrix, panel, left, c }),
                2 => L::call_without_tiles(FewRows::<2, false> { matrix, panel, left, c }),
                _ => L::call_without_tiles(FewRows::<FEW_ROWS, false> { matrix, panel, left, c }),
            }
        }
        item.finish::<L>(item.rows.clone(), panels, sums, SUMS_STRIDE);
    }
}

/// `R` rows and one panel, of any format or of those that are not quantized. `left` has all blocks of the rows, and `c` is the
/// panel's place in sums of `R` rows.
struct FewRows<'a, const R: usize, const ANY_FORMAT: bool> {
    matrix: &'a Matrix<bf16>,
    panel: usize,
    left: *const bf16,
    c: *mut f32,
}

impl<const R: usize, const ANY_FORMAT: bool> Kernel for FewRows<'_, R, ANY_FORMAT> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self) {
        let pairs = self.matrix.blocks() * BLOCK_PAIRS;
        let sums = Chains::<R> { left: self.left, pairs, c: self.c, c_stride: SUMS_STRIDE, resume: false };
        let ahead = self.matrix.prefetch_distance(self.panel, 0, 1);
        if ANY_FORMAT {
            self.matrix.run_panel::<L>(self.panel, 0, ahead, sums);
        } else {
            self.matrix.run_float_panel::<L>(self.panel, 0, ahead, sums);
        }
    }
}

/// `R` rows in tile order, times one panel. Pointers are good for what is stated: a comment where one is made says why.
pub(crate) struct Chains<const R: usize> {
    pub(crate) left: *const bf16,
    /// Pairs of k.
    pub(crate) pairs: usize,
    pub(crate) c: *mut f32,
    pub(crate) c_stride: usize,
    /// Whether sums go on from what C has.
    pub(crate) resume: bool,
}

impl<const R: usize> PanelKernel for Chains<R> {
    #[inline(always)]
    fn run<L: Lanes, F: WeightFormat>(self, mut panel: F) {
        let (mut sums, mut rows) = ([L::splat(0.0); R], RowsOfBlock([[0.0; BLOCK_DEPTH]; R]));
        // SAFETY: the rows, the panel and C are as stated.
        unsafe {
            if self.resume {
                for r in 0..R {
                    sums[r] = L::load(self.c.add(r * self.c_stride));
                }
            }
            for block in 0..self.pairs / BLOCK_PAIRS {
                let mut chains = BlockChains::<L, R>::begin(self.left.add(block * TILE), &mut rows);
                let weights = panel.next::<L>();
                for_each_pair!(L, |pair| {
                    F::prefetch::<L>(&weights, pair);
                    chains.add(pair, F::pair::<L>(&weights, pair));
                });
                chains.end(&mut sums);
            }
            let rest = self.pairs % BLOCK_PAIRS;
            if rest > 0 {
                let mut chains = BlockChains::<L, R>::begin(self.left.add(self.pairs / BLOCK_PAIRS * TILE), &mut rows);
                let weights = panel.next::<L>();
                for pair in 0..rest {
                    F::prefetch::<L>(&weights, pair);
                    chains.add(pair, F::pair::<L>(&weights, pair));
                }
                chains.end(&mut sums);
            }
            for r in 0..R {
                sums[r].store(self.c.add(r * self.c_stride));
            }
        }
    }
}

/// Both chains of a block, and its rows in f32: multiply-adds take broadcasts from memory, as the unit that would make them in
/// registers has other work.
struct BlockChains<'a, L, const R: usize> {
    rows: &'a RowsOfBlock<R>,
    even: [L; R],
    odd: [L; R],
}

/// Even k, then odd k.
#[repr(align(64))]
struct RowsOfBlock<const R: usize>([[f32; BLOCK_DEPTH]; R]);

impl<'a, L: Lanes, const R: usize> BlockChains<'a, L, R> {
    /// # Safety
    /// 32 k of `R` rows of one tile are readable at `left`.
    #[inline(always)]
    unsafe fn begin(left: *const bf16, rows: &'a mut RowsOfBlock<R>) -> Self {
        let zeros = [L::splat(0.0); R];
        for r in 0..R {
            // SAFETY: the caller's promise; half of a row's k fill a vector.
            unsafe {
                let (from, to) = (left.add(r * BLOCK_DEPTH).cast(), rows.0[r].as_mut_ptr());
                L::load_bf16_even(from).store(to);
                L::load_bf16_odd(from).store(to.add(BLOCK_PAIRS));
            }
        }
        Self { rows, even: zeros, odd: zeros }
    }

    #[inline(always)]
    fn add(&mut self, pair: usize, [even, odd]: [L; 2]) {
        for r in 0..R {
            self.even[r] = L::splat(self.rows.0[r][pair]).fma(even, self.even[r]);
            self.odd[r] = L::splat(self.rows.0[r][BLOCK_PAIRS + pair]).fma(odd, self.odd[r]);
        }
    }

    #[inline(always)]
    fn end(self, sums: &mut [L; R]) {
        for r in 0..R {
            sums[r] = sums[r].add(self.even[r].add(self.odd[r]));
        }
    }
}
