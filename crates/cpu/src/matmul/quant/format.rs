//! Types with a scale for each 32 weights: how large a cell of each is, and what lies behind its codes.

use baton_model::Dtype;
use half::f16;

use super::codes::code_bytes;
use super::group::Group;
use crate::simd::vector::{LANES, Lanes};

/// How the cells of a panel are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Format {
    pub(super) width: CodeWidth,
    /// The code that stands for zero.
    pub(super) zero: u8,
    pub(super) scales: Precision,
    pub(super) minima: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CodeWidth {
    Four,
    Five,
    Eight,
}

impl CodeWidth {
    pub(super) const fn bits(self) -> usize {
        match self {
            Self::Four => 4,
            Self::Five => 5,
            Self::Eight => 8,
        }
    }
}

/// Of scales and minima: what the file has, or what its products of scales need.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Precision {
    Half,
    Single,
}

impl Format {
    /// `None` for types without groups of 32.
    pub(crate) fn of(dtype: Dtype) -> Option<Self> {
        use CodeWidth::{Eight, Five, Four};
        use Precision::{Half, Single};
        let format = |width, zero, scales, minima| Some(Self { width, zero, scales, minima });
        match dtype {
            Dtype::Q4_0 => format(Four, 8, Half, false),
            Dtype::Q4_1 => format(Four, 0, Half, true),
            Dtype::Q5_0 => format(Five, 16, Half, false),
            Dtype::Q5_1 => format(Five, 0, Half, true),
            Dtype::Q8_0 => format(Eight, 128, Half, false),
            Dtype::Q4K => format(Four, 0, Single, true),
            Dtype::Q5K => format(Five, 0, Single, true),
            Dtype::F32 | Dtype::F16 | Dtype::Bf16 | Dtype::Q2K | Dtype::Q3K | Dtype::Q6K => None,
        }
    }

    pub(super) const fn code_bytes(self) -> usize {
        code_bytes(self.width.bits())
    }

    /// Of 16 scales, or of 16 minima.
    pub(super) const fn scale_bytes(self) -> usize {
        match self.scales {
            Precision::Half => 2 * LANES,
            Precision::Single => 4 * LANES,
        }
    }

    /// Scales and minima of a cell; where a type has no minima, what takes the code for zero to zero.
    ///
    /// # Safety
    /// What lies behind the codes of a cell is readable.
    #[inline(always)]
    pub(super) unsafe fn scales<L: Lanes>(self, behind_codes: *const u8) -> (L, L) {
        // SAFETY: behind the scales are the minima.
        unsafe {
            let scales: L = self.sixteen(behind_codes);
            let minima = if self.minima {
                self.sixteen(behind_codes.add(self.scale_bytes()))
            } else {
                // Exact: a power of two.
                scales.mul(L::splat(-f32::from(self.zero)))
            };
            (scales, minima)
        }
    }

    /// Scales, or minima.
    ///
    /// # Safety
    /// 16 of them are readable.
    #[inline(always)]
    unsafe fn sixteen<L: Lanes>(self, scales: *const u8) -> L {
        // SAFETY: the caller's promise.
        unsafe {
            match self.scales {
                Precision::Half => L::load_f16(scales),
                Precision::Single => L::load(scales.cast()),
            }
        }
    }

    /// Writes those of one column of a cell that is zero so far.
    pub(super) fn put_scales(self, cell: &mut [u8], column: usize, group: &Group) {
        let scales = &mut cell[self.code_bytes()..];
        self.put_scale(scales, column, group.scale);
        if self.minima {
            self.put_scale(&mut scales[self.scale_bytes()..], column, group.minimum);
        }
    }

    fn put_scale(self, scales: &mut [u8], column: usize, value: f32) {
        match self.scales {
            Precision::Half => scales[2 * column..][..2].copy_from_slice(&f16::from_f32(value).to_le_bytes()),
            Precision::Single => scales[4 * column..][..4].copy_from_slice(&value.to_le_bytes()),
        }
    }

    pub(crate) const fn cell_bytes(self) -> usize {
        self.code_bytes() + self.scale_bytes() * if self.minima { 2 } else { 1 }
    }
}
