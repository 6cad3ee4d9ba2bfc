//! Types with a scale for each 32 weights: how large a block of 16 columns × 32 k is, and what lies behind its values.

use baton_model::Dtype;
use half::f16;

use super::group::Group;
use super::packing::packed_bytes;
use crate::simd::vector::{LANES, Lanes};

/// The layout of a panel's blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BlockFormat {
    pub(crate) width: BitWidth,
    /// The quantized value that stands for zero.
    pub(crate) zero_point: u8,
    pub(crate) scales: Precision,
    pub(crate) minima: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BitWidth {
    Four,
    Five,
    Eight,
}

impl BitWidth {
    pub(crate) const fn bits(self) -> usize {
        match self {
            Self::Four => 4,
            Self::Five => 5,
            Self::Eight => 8,
        }
    }
}

/// How scales and minima are kept: as in the file, or in f32 where they are products of two scales of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Precision {
    Half,
    Single,
}

impl BlockFormat {
    /// `None` for types without groups of 32.
    pub(crate) fn of(dtype: Dtype) -> Option<Self> {
        use BitWidth::{Eight, Five, Four};
        use Precision::{Half, Single};
        let format = |width, zero_point, scales, minima| Some(Self { width, zero_point, scales, minima });
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

    pub(crate) const fn packed_bytes(self) -> usize {
        packed_bytes(self.width.bits())
    }

    /// Bytes of 16 scales, or of 16 minima.
    pub(crate) const fn scale_bytes(self) -> usize {
        match self.scales {
            Precision::Half => 2 * LANES,
            Precision::Single => 4 * LANES,
        }
    }

    /// Scales and minima of a block; a type without minima gets `-zero_point · scale`.
    ///
    /// # Safety
    /// What lies behind the values of a block is readable.
    #[inline(always)]
    pub(crate) unsafe fn scales<L: Lanes>(self, behind_values: *const u8) -> (L, L) {
        // SAFETY: behind the scales are the minima.
        unsafe {
            let scales: L = self.sixteen(behind_values);
            let minima = if self.minima {
                self.sixteen(behind_values.add(self.scale_bytes()))
            } else {
                // Exact: a power of two.
                scales.mul(L::splat(-f32::from(self.zero_point)))
            };
            (scales, minima)
        }
    }

    /// 16 scales, or 16 minima.
    ///
    /// # Safety
    /// They are readable.
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

    /// Writes the scale and minimum of one column of a block that is zero so far.
    pub(crate) fn pack_scales(self, block: &mut [u8], column: usize, group: &Group) {
        let scales = &mut block[self.packed_bytes()..];
        self.pack_scale(scales, column, group.scale);
        if self.minima {
            self.pack_scale(&mut scales[self.scale_bytes()..], column, group.minimum);
        }
    }

    fn pack_scale(self, scales: &mut [u8], column: usize, value: f32) {
        match self.scales {
            Precision::Half => scales[2 * column..][..2].copy_from_slice(&f16::from_f32(value).to_le_bytes()),
            Precision::Single => scales[4 * column..][..4].copy_from_slice(&value.to_le_bytes()),
        }
    }

    pub(crate) const fn block_bytes(self) -> usize {
        self.packed_bytes() + self.scale_bytes() * if self.minima { 2 } else { 1 }
    }
}
