//! Weights that have a small integer scale for each 16 of them, and one scale for each 256: Q2_K, Q3_K and Q6_K.
//!
//! Behind the values of a superblock of 16 columns:
//!
//! ```text
//!   bytes [group of 16][column]   small scales; with small minima: minima in the high halves, scales in the low ones
//!   16 scales | 16 minima
//! ```

mod file;

use baton_model::Dtype;

pub(crate) use self::file::Superblock;
use crate::simd::vector::{LANES, Lanes};
use crate::weights::layout::GROUP;

/// k of a superblock.
pub(crate) const SUPER_DEPTH: usize = 256;
/// Blocks of 32 k.
pub(crate) const SUPER_BLOCKS: usize = SUPER_DEPTH / GROUP;
/// k that share a small scale.
const SMALL_GROUP: usize = 16;
pub(crate) const SMALL_GROUPS: usize = SUPER_DEPTH / SMALL_GROUP;
pub(crate) const SMALL_BYTES: usize = SMALL_GROUPS * LANES;
pub(crate) const HALVES_BYTES: usize = LANES * 2;

/// The layout of a panel's superblocks, by the bits of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SuperblockFormat {
    /// With minima.
    Two,
    Three,
    Six,
}

impl SuperblockFormat {
    pub(crate) fn of(dtype: Dtype) -> Option<Self> {
        match dtype {
            Dtype::Q2K => Some(Self::Two),
            Dtype::Q3K => Some(Self::Three),
            Dtype::Q6K => Some(Self::Six),
            _ => None,
        }
    }

    pub(crate) const fn has_minima(self) -> bool {
        matches!(self, Self::Two)
    }

    /// Bits of a value.
    pub(crate) const fn bits(self) -> usize {
        match self {
            Self::Two => 2,
            Self::Three => 3,
            Self::Six => 6,
        }
    }

    /// The quantized value that stands for zero.
    pub(crate) const fn zero_point(self) -> u8 {
        if self.has_minima() { 0 } else { 1 << (self.bits() - 1) }
    }

    /// Bytes of the values of 16 columns × 32 k.
    pub(crate) const fn packed_bytes(self) -> usize {
        LANES * GROUP / 8 * self.bits()
    }

    /// Bytes of a superblock of 16 columns: whole cache lines.
    pub(crate) const fn superblock_bytes(self) -> usize {
        (SUPER_BLOCKS * self.packed_bytes() + SMALL_BYTES + 2 * HALVES_BYTES).next_multiple_of(64)
    }

    /// Writes the scales and minima of one column behind the values, which are zero so far.
    pub(crate) fn pack_scales(self, behind_values: &mut [u8], column: usize, superblock: &Superblock) {
        let (small, scales) = behind_values.split_at_mut(SMALL_BYTES);
        for group in 0..SMALL_GROUPS {
            let (scale, minimum) = (superblock.small_scales[group] as u8, superblock.small_minima[group] as u8);
            small[group * LANES + column] = if self.has_minima() { scale | minimum << 4 } else { scale };
        }
        scales[2 * column..][..2].copy_from_slice(&superblock.scale.to_le_bytes());
        scales[HALVES_BYTES + 2 * column..][..2].copy_from_slice(&superblock.minimum.to_le_bytes());
    }

    /// Scales and minima of a group of 16; a type without minima gets `-zero_point · scale`.
    ///
    /// # Safety
    /// What lies behind the values of a superblock is readable.
    #[inline(always)]
    #[allow(clippy::needless_range_loop, reason = "columns are numbers here; indexed loops become vectors")]
    pub(crate) unsafe fn scales<L: Lanes>(self, behind_values: *const u8, group: usize) -> (L, L) {
        // Products of 11 bits and 8 are exact.
        // SAFETY: the caller's promise.
        unsafe {
            let small = &*behind_values.add(group * LANES).cast::<[i8; LANES]>();
            let scale = L::load_f16(behind_values.add(SMALL_BYTES));
            if !self.has_minima() {
                let scale = scale.mul(L::load_i8(small.as_ptr()));
                return (scale, scale.mul(L::splat(-f32::from(self.zero_point()))));
            }
            let minimum = L::load_f16(behind_values.add(SMALL_BYTES + HALVES_BYTES));
            let (mut scales, mut minima) = ([0; LANES], [0; LANES]);
            for column in 0..LANES {
                scales[column] = small[column] & 15;
                minima[column] = small[column] >> 4 & 15;
            }
            (scale.mul(L::load_i8(scales.as_ptr())), minimum.mul(L::load_i8(minima.as_ptr())))
        }
    }
}
