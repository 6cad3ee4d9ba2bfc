//! RMSNorm of rows.

#![allow(clippy::needless_range_loop, reason = "rows are numbers here; indexed loops unroll into registers")]

use crate::simd::vector::{LANES, Lanes};

/// x / √(mean(x²) + eps) · weight. Rows are padded with zeros to whole vectors, so the padding adds nothing.
#[derive(Clone, Copy)]
pub(crate) struct RmsNorm<'a> {
    pub(crate) weight: &'a [f32],
    /// The width without padding.
    pub(crate) hidden: usize,
    pub(crate) eps: f32,
}

impl RmsNorm<'_> {
    /// Passes the normed row to `put`, 16 columns at a time.
    #[inline(always)]
    pub(crate) fn apply<L: Lanes>(&self, x: &[f32], mut put: impl FnMut(usize, L)) {
        let [scale] = self.scales([x]);
        for i in (0..self.weight.len()).step_by(LANES) {
            // SAFETY: whole vectors inside the row, as `scales` has seen.
            let (x, weight) = unsafe { (L::load(x.as_ptr().add(i)), L::load(self.weight.as_ptr().add(i))) };
            put(i, weight.mul(x.mul(scale)));
        }
    }

    /// The factors of rows, to be multiplied with the weights. Several rows are interleaved, because each sum waits for its last
    /// addition.
    #[inline(always)]
    pub(crate) fn scales<L: Lanes, const R: usize>(&self, rows: [&[f32]; R]) -> [L; R] {
        let width = self.weight.len();
        assert!(width.is_multiple_of(LANES));
        let mut squares = [L::splat(0.0); R];
        for r in 0..R {
            assert!(rows[r].len() >= width);
        }
        for i in (0..width).step_by(LANES) {
            for r in 0..R {
                // SAFETY: whole vectors inside the rows.
                let x = unsafe { L::load(rows[r].as_ptr().add(i)) };
                squares[r] = x.fma(x, squares[r]);
            }
        }
        for r in 0..R {
            let mean = squares[r].sum() / self.hidden as f32;
            squares[r] = L::splat(1.0 / (mean + self.eps).sqrt());
        }
        squares
    }
}
