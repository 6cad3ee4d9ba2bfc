//! Weights that have a small integer scale for each 16 of them, and one scale for each 256: Q2_K, Q3_K and Q6_K.
//!
//! A panel of 16 columns is a chain of supercells, one for each 256 k:
//!
//! ```text
//!   supercell = codes of 16 columns × 256 k | small scales of 16 columns × 16 groups | 16 scales | 16 minima, if the type has them
//! ```
//!
//! A tile has one sum for 32 k, so codes meet their small scales before the product, and the one scale after it:
//!
//! ```text
//!   weight = small scale · (code - zero)     an integer; the nearest bf16 where it needs more than 8 bits, as some of Q6_K do
//!   dot    = the 256 products of bf16(x) and weights, in the order of bf16 weights
//!   acc    = dot · scale + acc
//!   acc    = (sum of small minimum · sum of 16 x) · minimum + acc
//! ```

mod cell;
mod expand;
mod few_rows;
mod file;
mod multiply;
mod scale;
#[cfg(test)]
mod tests;

use baton_model::Dtype;

pub(super) use self::file::Superblock;
pub(super) use self::multiply::multiply;

use self::cell::Supercell;

/// k of a superblock.
pub(super) const SUPER_DEPTH: usize = 256;
/// k that share a small scale.
const SMALL_GROUP: usize = 16;
pub(super) const SMALL_GROUPS: usize = SUPER_DEPTH / SMALL_GROUP;

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

    pub(super) fn has_minima(self) -> bool {
        self == Self::Two
    }

    pub(super) const fn cell_bytes(self) -> usize {
        match self {
            Self::Two => Supercell::<2>::BYTES,
            Self::Three => Supercell::<3>::BYTES,
            Self::Six => Supercell::<6>::BYTES,
        }
    }

    /// Writes one column of a supercell that is zero so far.
    pub(super) fn put(self, cell: &mut [u8], column: usize, superblock: &Superblock) {
        match self {
            Self::Two => Supercell::<2>::put(cell, column, superblock),
            Self::Three => Supercell::<3>::put(cell, column, superblock),
            Self::Six => Supercell::<6>::put(cell, column, superblock),
        }
    }
}
