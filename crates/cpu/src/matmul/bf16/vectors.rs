//! Products of bf16 in vector registers, where there are no tiles.
//!
//! Multiply-adds want f32, so a block of k is widened before it is used: columns once for all rows, rows once for all panels that
//! are at hand. Both stay in the first-level cache.
//!
//! ```text
//!   columns   [even k, then odd k][panel][16 columns]      read in this order
//!   rows      [row][even k, then odd k]
//! ```

#![allow(
    clippy::needless_range_loop,
    reason = "rows, panels and lanes are numbers here; indexed loops unroll into registers"
)]

use std::mem::MaybeUninit;

use half::bf16;

use crate::simd::vector::{LANES, Lanes};
use crate::weights::format::{WeightFormat, for_each_pair};
use crate::weights::layout::{BLOCK_DEPTH, BLOCK_PAIRS, TILE_ROWS};

/// From the columns of one k to those of the next.
const K_STRIDE: usize = WIDE_PANELS * LANES;
/// Panels that share what is widened of the rows: 8 KiB, a quarter of a first-level cache, or half of one that two threads share.
pub(super) const WIDE_PANELS: usize = 4;
/// The most rows that share one load of the columns.
const STRIP_ROWS: usize = 8;

/// One block of the columns of some panels, and of some rows. Both begin where a page does: at some other places on a stack
/// products take a tenth longer.
#[repr(C, align(4096))]
pub(super) struct Widened {
    columns: MaybeUninit<[[[f32; LANES]; WIDE_PANELS]; BLOCK_DEPTH]>,
    rows: MaybeUninit<[[f32; BLOCK_DEPTH]; STRIP_ROWS]>,
}

impl Widened {
    pub(super) const fn new() -> Self {
        Self { columns: MaybeUninit::uninit(), rows: MaybeUninit::uninit() }
    }

    /// Some pairs of k of one panel's next block.
    ///
    /// # Safety
    /// The panel has them.
    #[inline(always)]
    pub(super) unsafe fn put_columns<L: Lanes, F: WeightFormat>(&mut self, place: usize, mut panel: F, pairs: usize) {
        assert!(place < WIDE_PANELS && pairs <= BLOCK_PAIRS);
        let to = self.columns.as_mut_ptr().cast::<f32>();
        // SAFETY: the caller's promise, and a panel's place.
        unsafe {
            let block = panel.next::<L>();
            if pairs == BLOCK_PAIRS {
                for_each_pair!(L, |pair| put_pair(F::pair::<L>(&block, pair), to.add(pair * K_STRIDE + place * LANES)));
            } else {
                for pair in 0..pairs {
                    put_pair(F::pair::<L>(&block, pair), to.add(pair * K_STRIDE + place * LANES));
                }
            }
        }
    }
}

/// # Safety
/// The columns of both k are writable.
#[inline(always)]
unsafe fn put_pair<L: Lanes>([even, odd]: [L; 2], to: *mut f32) {
    // SAFETY: the caller's promise.
    unsafe {
        even.store(to);
        odd.store(to.add(BLOCK_PAIRS * K_STRIDE));
    }
}

/// One block of rows in tile order, times columns.
#[derive(Clone, Copy)]
pub(super) struct BlockProduct {
    pub(super) rows: usize,
    pub(super) panels: usize,
    /// Pairs of k.
    pub(super) pairs: usize,
    pub(super) a: *const bf16,
    pub(super) a_tile_stride: usize,
    pub(super) c: *mut f32,
    pub(super) c_stride: usize,
    /// Whether sums begin with this block, from zero.
    pub(super) begins: bool,
}

impl BlockProduct {
    /// # Safety
    /// A and C hold what the product says, and the columns its pairs of its panels.
    #[inline(always)]
    pub(super) unsafe fn run<L: Lanes>(&self, widened: &mut Widened) {
        debug_assert!(self.panels <= WIDE_PANELS);
        let mut row = 0;
        while row < self.rows {
            // SAFETY: the caller's promise.
            row += unsafe {
                match self.rows - row {
                    4.. if L::ACCUMULATORS >= 16 && self.panels == WIDE_PANELS => {
                        self.strip::<L, 4, WIDE_PANELS>(row, widened)
                    }
                    8.. if L::ACCUMULATORS >= 16 => self.strip::<L, 8, 2>(row, widened),
                    6.. if L::ACCUMULATORS < 16 => self.strip::<L, 6, 1>(row, widened),
                    4.. if L::ACCUMULATORS >= 16 => self.strip::<L, 4, 2>(row, widened),
                    4.. => self.strip::<L, 4, 1>(row, widened),
                    2.. if L::ACCUMULATORS >= 16 => self.strip::<L, 2, 2>(row, widened),
                    2.. => self.strip::<L, 2, 1>(row, widened),
                    _ if L::ACCUMULATORS >= 16 => self.strip::<L, 1, 2>(row, widened),
                    _ => self.strip::<L, 1, 1>(row, widened),
                }
            };
        }
    }

    /// `R` rows, `P` panels at a time.
    ///
    /// # Safety
    /// As for `run`.
    #[inline(always)]
    unsafe fn strip<L: Lanes, const R: usize, const P: usize>(&self, row: usize, widened: &mut Widened) -> usize {
        let x = widened.rows.as_mut_ptr().cast::<f32>();
        for r in 0..R {
            // SAFETY: a row's 32 k, and its place. What lies behind may be anything, it is only prefetched.
            unsafe {
                let from = self.row(row + r);
                L::prefetch(self.row(row + R + r).cast());
                L::load_bf16_even(from.cast()).store(x.add(r * BLOCK_DEPTH));
                L::load_bf16_odd(from.cast()).store(x.add(r * BLOCK_DEPTH + BLOCK_PAIRS));
            }
        }
        let columns = widened.columns.as_ptr().cast::<f32>();
        let mut panel = 0;
        // SAFETY: the caller's promise.
        unsafe {
            while panel + P <= self.panels {
                self.products::<L, R, P>((row, panel), x, columns.add(panel * LANES));
                panel += P;
            }
            while panel < self.panels {
                self.products::<L, R, 1>((row, panel), x, columns.add(panel * LANES));
                panel += 1;
            }
        }
        R
    }

    #[inline(always)]
    fn row(&self, row: usize) -> *const bf16 {
        self.a.wrapping_add(row / TILE_ROWS * self.a_tile_stride + row % TILE_ROWS * BLOCK_DEPTH)
    }

    /// # Safety
    /// As for `run`, from this row and panel on.
    #[inline(always)]
    unsafe fn products<L: Lanes, const R: usize, const P: usize>(
        &self,
        (row, panel): (usize, usize),
        x: *const f32,
        columns: *const f32,
    ) {
        // SAFETY: the caller's promise.
        unsafe {
            let even = chains::<L, R, P>(x, columns, self.pairs);
            let odd = chains::<L, R, P>(x.add(BLOCK_PAIRS), columns.add(BLOCK_PAIRS * K_STRIDE), self.pairs);
            for r in 0..R {
                for p in 0..P {
                    let c = self.c.add((row + r) * self.c_stride + (panel + p) * LANES);
                    let sum = if self.begins { L::splat(0.0) } else { L::load(c) };
                    sum.add(even[r][p].add(odd[r][p])).store(c);
                }
            }
        }
    }
}

/// Every second k of a block, from zero.
///
/// # Safety
/// `count` k of `R` rows and `P` panels are readable.
#[inline(always)]
unsafe fn chains<L: Lanes, const R: usize, const P: usize>(
    x: *const f32,
    columns: *const f32,
    count: usize,
) -> [[L; P]; R] {
    let mut sums = [[L::splat(0.0); P]; R];
    for k in 0..count {
        let mut of_panels = [L::splat(0.0); P];
        for p in 0..P {
            // SAFETY: the caller's promise.
            of_panels[p] = unsafe { L::load(columns.add(k * K_STRIDE + p * LANES)) };
        }
        for r in 0..R {
            // SAFETY: the caller's promise.
            let x = L::splat(unsafe { *x.add(r * BLOCK_DEPTH + k) });
            for p in 0..P {
                sums[r][p] = x.fma(of_panels[p], sums[r][p]);
            }
        }
    }
    sums
}
