//! Weights that have a small integer scale for each 16 of them, and one scale for each 256: Q2_K, Q3_K and Q6_K.
//!
//! Behind the codes of a supercell:
//!
//! ```text
//!   bytes [group of 16][column]   small scales; where there are small minima these are the high halves, and scales the low ones
//!   16 scales | 16 minima
//! ```

mod file;

use baton_model::Dtype;

pub(super) use self::file::Superblock;
use crate::simd::vector::{LANES, Lanes};
use crate::weights::layout::GROUP;

/// k of a superblock.
pub(super) const SUPER_DEPTH: usize = 256;
/// Blocks of 32 k.
pub(super) const SUPER_BLOCKS: usize = SUPER_DEPTH / GROUP;
/// k that share a small scale.
const SMALL_GROUP: usize = 16;
pub(super) const SMALL_GROUPS: usize = SUPER_DEPTH / SMALL_GROUP;
pub(super) const SMALL_BYTES: usize = SMALL_GROUPS * LANES;
pub(super) const HALVES_BYTES: usize = LANES * 2;

/// By the bits of their codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Superblocks {
    /// With minima.
    Two,
    Three,
    Six,
}

impl Superblocks {
    pub(super) fn of(dtype: Dtype) -> Option<Self> {
        match dtype {
            Dtype::Q2K => Some(Self::Two),
            Dtype::Q3K => Some(Self::Three),
            Dtype::Q6K => Some(Self::Six),
            _ => None,
        }
    }

    pub(super) const fn has_minima(self) -> bool {
        matches!(self, Self::Two)
    }

    /// Of a code.
    pub(super) const fn bits(self) -> usize {
        match self {
            Self::Two => 2,
            Self::Three => 3,
            Self::Six => 6,
        }
    }

    /// The code that stands for zero.
    pub(super) const fn zero(self) -> u8 {
        if self.has_minima() { 0 } else { 1 << (self.bits() - 1) }
    }

    /// Codes of 16 columns × 32 k.
    pub(super) const fn block_bytes(self) -> usize {
        LANES * GROUP / 8 * self.bits()
    }

    /// Whole cache lines.
    pub(super) const fn cell_bytes(self) -> usize {
        (SUPER_BLOCKS * self.block_bytes() + SMALL_BYTES + 2 * HALVES_BYTES).next_multiple_of(64)
    }

    /// Writes those of one column: what lies behind the codes, and is zero so far.
    pub(super) fn put_scales(self, behind_codes: &mut [u8], column: usize, superblock: &Superblock) {
        let (small, scales) = behind_codes.split_at_mut(SMALL_BYTES);
        for group in 0..SMALL_GROUPS {
            let (scale, minimum) = (superblock.small_scales[group] as u8, superblock.small_minima[group] as u8);
            small[group * LANES + column] = if self.has_minima() { scale | minimum << 4 } else { scale };
        }
        scales[2 * column..][..2].copy_from_slice(&superblock.scale.to_le_bytes());
        scales[HALVES_BYTES + 2 * column..][..2].copy_from_slice(&superblock.minimum.to_le_bytes());
    }

    /// Scales and minima of a group of 16; where a type has no minima, what takes the code for zero to zero.
    ///
    /// # Safety
    /// What lies behind the codes of a supercell is readable.
    #[inline(always)]
    #[allow(clippy::needless_range_loop, reason = "columns are numbers here; indexed loops become vectors")]
    pub(super) unsafe fn scales<L: Lanes>(self, behind_codes: *const u8, group: usize) -> (L, L) {
        // Products of 11 bits and 8 are exact.
        // SAFETY: the caller's promise.
        unsafe {
            let small = &*behind_codes.add(group * LANES).cast::<[i8; LANES]>();
            let scale = L::load_f16(behind_codes.add(SMALL_BYTES));
            if !self.has_minima() {
                let scale = scale.mul(L::load_i8(small.as_ptr()));
                return (scale, scale.mul(L::splat(-f32::from(self.zero()))));
            }
            let minimum = L::load_f16(behind_codes.add(SMALL_BYTES + HALVES_BYTES));
            let (mut scales, mut minima) = ([0; LANES], [0; LANES]);
            for column in 0..LANES {
                scales[column] = small[column] & 15;
                minima[column] = small[column] >> 4 & 15;
            }
            (scale.mul(L::load_i8(scales.as_ptr())), minimum.mul(L::load_i8(minima.as_ptr())))
        }
    }
}
