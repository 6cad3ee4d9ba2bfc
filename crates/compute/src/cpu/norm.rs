//! RMSNorm of one row.

use super::isa::Kernel;
use super::lanes::{LANES, Lanes};
use super::math;

/// out = x / √(mean(x²) + eps) · weight. Rows are padded with zeros to whole vectors, so the padding adds nothing.
pub(crate) struct RmsNorm<'a> {
    pub(crate) x: &'a [f32],
    pub(crate) weight: &'a [f32],
    pub(crate) out: &'a mut [f32],
    /// Without padding.
    pub(crate) hidden: usize,
    pub(crate) eps: f32,
}

impl Kernel for RmsNorm<'_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self) {
        let width = self.x.len();
        assert!(width.is_multiple_of(LANES) && self.weight.len() == width && self.out.len() == width);
        let mut squares = L::splat(0.0);
        for i in (0..width).step_by(LANES) {
            // SAFETY: whole vectors inside the row.
            let x = unsafe { L::load(self.x.as_ptr().add(i)) };
            squares = x.fma(x, squares);
        }
        let mean = math::sum(squares) / self.hidden as f32;
        let scale = L::splat(1.0 / (mean + self.eps).sqrt());
        for i in (0..width).step_by(LANES) {
            // SAFETY: whole vectors inside the rows.
            unsafe {
                let x = L::load(self.x.as_ptr().add(i)).mul(scale);
                L::load(self.weight.as_ptr().add(i)).mul(x).store(self.out.as_mut_ptr().add(i));
            }
        }
    }
}
