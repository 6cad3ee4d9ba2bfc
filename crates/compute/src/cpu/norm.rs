//! RMSNorm of one row.

use super::lanes::{LANES, Lanes};
use super::math;

/// out = x / √(mean(x²) + eps) · weight. Rows are padded with zeros to whole vectors, so the padding adds nothing.
#[derive(Clone, Copy)]
pub(crate) struct RmsNorm<'a> {
    pub(crate) weight: &'a [f32],
    /// Without padding.
    pub(crate) hidden: usize,
    pub(crate) eps: f32,
}

impl RmsNorm<'_> {
    #[inline(always)]
    pub(crate) fn apply<L: Lanes>(&self, x: &[f32], out: &mut [f32]) {
        let width = self.weight.len();
        assert!(width.is_multiple_of(LANES) && x.len() >= width && out.len() >= width);
        let mut squares = L::splat(0.0);
        for i in (0..width).step_by(LANES) {
            // SAFETY: whole vectors inside the row.
            let x = unsafe { L::load(x.as_ptr().add(i)) };
            squares = x.fma(x, squares);
        }
        let mean = math::sum(squares) / self.hidden as f32;
        let scale = L::splat(1.0 / (mean + self.eps).sqrt());
        for i in (0..width).step_by(LANES) {
            // SAFETY: whole vectors inside the rows.
            unsafe {
                let x = L::load(x.as_ptr().add(i)).mul(scale);
                L::load(self.weight.as_ptr().add(i)).mul(x).store(out.as_mut_ptr().add(i));
            }
        }
    }
}
