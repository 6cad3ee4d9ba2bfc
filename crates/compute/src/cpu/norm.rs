//! RMSNorm of one row.

use super::lanes::{LANES, Lanes};

/// x / √(mean(x²) + eps) · weight. Rows are padded with zeros to whole vectors, so the padding adds nothing.
#[derive(Clone, Copy)]
pub(crate) struct RmsNorm<'a> {
    pub(crate) weight: &'a [f32],
    /// Without padding.
    pub(crate) hidden: usize,
    pub(crate) eps: f32,
}

impl RmsNorm<'_> {
    /// Hands 16 columns after the other to `put`.
    #[inline(always)]
    pub(crate) fn apply<L: Lanes>(&self, x: &[f32], mut put: impl FnMut(usize, L)) {
        let width = self.weight.len();
        assert!(width.is_multiple_of(LANES) && x.len() >= width);
        let mut squares = L::splat(0.0);
        for i in (0..width).step_by(LANES) {
            // SAFETY: whole vectors inside the row.
            let x = unsafe { L::load(x.as_ptr().add(i)) };
            squares = x.fma(x, squares);
        }
        let mean = squares.sum() / self.hidden as f32;
        let scale = L::splat(1.0 / (mean + self.eps).sqrt());
        for i in (0..width).step_by(LANES) {
            // SAFETY: whole vectors inside the rows.
            let (x, weight) = unsafe { (L::load(x.as_ptr().add(i)), L::load(self.weight.as_ptr().add(i))) };
            put(i, weight.mul(x.mul(scale)));
        }
    }
}
