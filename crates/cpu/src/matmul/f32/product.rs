//! The one matrix product of f32 below projections, attention scores and attention values.
//!
//! Every element of C is one chain of fused multiply-adds over k ascending, in one lane. Rows and columns are blocked for
//! registers; k is never split, so the blocking, and with it the number of rows, cannot show in a result.

#![allow(
    clippy::needless_range_loop,
    reason = "rows, panels and lanes are numbers here; indexed loops unroll into registers"
)]

use crate::simd::vector::{Kernel, LANES, Lanes};

/// C\[rows × 16·panels\] = A\[rows × depth\] · B, or C += A · B when it resumes an earlier product's chain.
///
/// A's rows are `ROW` floats apart, which the compiler turns into addresses without registers.
pub(crate) struct Product<const ROW: usize> {
    pub(crate) rows: usize,
    pub(crate) panels: usize,
    pub(crate) depth: usize,
    pub(crate) a: *const f32,
    /// From one k to the next.
    pub(crate) a_step: usize,
    /// At an even k.
    pub(crate) b: *const f32,
    pub(crate) b_pair_stride: usize,
    pub(crate) b_panel_stride: usize,
    pub(crate) c: *mut f32,
    pub(crate) c_stride: usize,
    pub(crate) resume: bool,
}

/// The most rows that share one load of B.
pub(crate) const MAX_TILE_ROWS: usize = 12;

/// Prefetch distance of B.
const PREFETCH_PAIRS: usize = 24;

impl<const ROW: usize> Product<ROW> {
    #[inline(always)]
    fn skip_rows(&mut self, rows: usize) {
        self.rows -= rows;
        // SAFETY: still inside A and C, or one past their end.
        unsafe {
            self.a = self.a.add(rows * ROW);
            self.c = self.c.add(rows * self.c_stride);
        }
    }

    #[inline(always)]
    fn skip_panels(&mut self, panels: usize) {
        self.panels -= panels;
        // SAFETY: still inside B and C, or one past their end.
        unsafe {
            self.b = self.b.add(panels * self.b_panel_stride);
            self.c = self.c.add(panels * LANES);
        }
    }
}

/// Pointers in a `Product` are good for the shapes it states: a comment where one is made says why.
impl<const ROW: usize> Kernel for Product<ROW> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(mut self) {
        while self.rows > 0 {
            let rows = match self.rows {
                12.. if L::ACCUMULATORS >= 24 => strip::<L, ROW, 12>(&self),
                8.. if L::ACCUMULATORS >= 16 => strip::<L, ROW, 8>(&self),
                6.. => strip::<L, ROW, 6>(&self),
                4.. => strip::<L, ROW, 4>(&self),
                3 => strip::<L, ROW, 3>(&self),
                2 => strip::<L, ROW, 2>(&self),
                _ => strip::<L, ROW, 1>(&self),
            };
            self.skip_rows(rows);
        }
    }
}

/// All panels of the first `R` rows, as many at once as there are accumulators for.
#[inline(always)]
fn strip<L: Lanes, const ROW: usize, const R: usize>(all: &Product<ROW>) -> usize {
    let mut left = Product { rows: R, ..*all };
    if R * 8 <= L::ACCUMULATORS {
        while left.panels >= 8 {
            tile::<L, ROW, R, 8>(&left);
            left.skip_panels(8);
        }
    }
    if R * 4 <= L::ACCUMULATORS {
        while left.panels >= 4 {
            tile::<L, ROW, R, 4>(&left);
            left.skip_panels(4);
        }
    }
    if R * 2 <= L::ACCUMULATORS {
        while left.panels >= 2 {
            tile::<L, ROW, R, 2>(&left);
            left.skip_panels(2);
        }
    }
    while left.panels >= 1 {
        tile::<L, ROW, R, 1>(&left);
        left.skip_panels(1);
    }
    R
}

/// The first `R` rows × the first `P` panels, accumulated in registers.
#[inline(always)]
fn tile<L: Lanes, const ROW: usize, const R: usize, const P: usize>(product: &Product<ROW>) {
    let &Product { depth, a, a_step, b, b_pair_stride, b_panel_stride, c, c_stride, .. } = product;
    let mut sums = [[L::splat(0.0); P]; R];
    // SAFETY: `R` rows and `P` panels lie inside A, B and C; an odd depth has the first half of one more pair.
    unsafe {
        if product.resume {
            for r in 0..R {
                for p in 0..P {
                    sums[r][p] = L::load(c.add(r * c_stride + p * LANES));
                }
            }
        }
        let (mut a, mut b) = (a, b);
        for _ in 0..depth / 2 {
            let mut columns = [L::splat(0.0); P];
            for p in 0..P {
                L::prefetch(b.wrapping_add(p * b_panel_stride + PREFETCH_PAIRS * b_pair_stride).cast());
                columns[p] = L::load(b.add(p * b_panel_stride));
            }
            accumulate::<L, ROW, R, P>(&mut sums, &columns, a);
            for p in 0..P {
                columns[p] = L::load(b.add(p * b_panel_stride + b_pair_stride / 2));
            }
            accumulate::<L, ROW, R, P>(&mut sums, &columns, a.add(a_step));
            a = a.add(2 * a_step);
            b = b.add(b_pair_stride);
        }
        if depth % 2 == 1 {
            let mut columns = [L::splat(0.0); P];
            for p in 0..P {
                columns[p] = L::load(b.add(p * b_panel_stride));
            }
            accumulate::<L, ROW, R, P>(&mut sums, &columns, a);
        }
        for r in 0..R {
            for p in 0..P {
                sums[r][p].store(c.add(r * c_stride + p * LANES));
            }
        }
    }
}

/// One k: each row's value of A times all columns.
///
/// # Safety
/// `a` is readable at `R` rows.
#[inline(always)]
unsafe fn accumulate<L: Lanes, const ROW: usize, const R: usize, const P: usize>(
    sums: &mut [[L; P]; R],
    columns: &[L; P],
    a: *const f32,
) {
    for r in 0..R {
        // SAFETY: the caller's promise.
        let x = L::splat(unsafe { *a.add(r * ROW) });
        for p in 0..P {
            sums[r][p] = x.fma(columns[p], sums[r][p]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simd::isa::Isa;
    use crate::weights::element::Element;
    use crate::weights::layout::pair_stride;

    fn value(i: usize) -> f32 {
        ((i * 2_654_435_761) % 1009) as f32 / 504.0 - 1.0
    }

    /// Against the definition: `mul_add` over k ascending.
    fn check(rows: usize, panels: usize, depth: usize) {
        let width = panels * LANES;
        let a: Vec<f32> = (0..rows * depth).map(value).collect();
        let mut b = vec![0.0_f32; depth.next_multiple_of(2) * width];
        for k in 0..depth {
            for n in 0..width {
                b[f32::index(k, n, width)] = value(k * 7919 + n * 31 + 5);
            }
        }
        let start: Vec<f32> = (0..rows * width).map(|i| value(i + 3)).collect();
        for (isa, resume) in Isa::available().into_iter().flat_map(|isa| [(isa, false), (isa, true)]) {
            let mut c = start.clone();
            isa.run(Product::<1> {
                rows,
                panels,
                depth,
                a: a.as_ptr(),
                a_step: rows,
                b: b.as_ptr(),
                b_pair_stride: pair_stride(width),
                b_panel_stride: f32::index(0, LANES, width),
                c: c.as_mut_ptr(),
                c_stride: width,
                resume,
            });
            for r in 0..rows {
                for n in 0..width {
                    let mut expected = if resume { start[r * width + n] } else { 0.0 };
                    for k in 0..depth {
                        expected = a[k * rows + r].mul_add(b[f32::index(k, n, width)], expected);
                    }
                    let got = c[r * width + n];
                    assert_eq!(got.to_bits(), expected.to_bits(), "{isa} {rows}×{panels}×{depth} at ({r}, {n})");
                }
            }
        }
    }

    #[test]
    fn every_blocking_is_the_same_chain() {
        for rows in 1..=26 {
            for (panels, depth) in [(1, 1), (2, 7), (3, 16), (9, 33), (15, 10)] {
                check(rows, panels, depth);
            }
        }
    }
}
