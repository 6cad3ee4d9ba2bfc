//! How codes lie in a cell. Columns c of 0..16, k of 0..32 as pair r = k / 2 and parity p = k % 2:
//!
//! ```text
//!   4 bits   word 2c + p of 64 bytes r / 4: four pairs, the first lowest
//!   5 bits   the low four as above, then a fifth bit r in word 2c + p of 64 more bytes
//!   8 bits   byte c of 16 bytes (r, p)
//! ```
//!
//! In the order of words 2c + p a tile has its bf16, so a look-up in a table of 16 or 32 values makes a row of it.

use half::{bf16, f16};

use super::format::{CodeWidth, Format, GROUP, Precision};
use super::group::Group;
use crate::cpu::lanes::LANES;

/// 16 columns × 32 k in the order of an AMX tile: `[k/2][column][k%2]`.
pub(super) type Tile = [bf16; LANES * GROUP];

impl Format {
    /// Writes one column of a cell that is zero so far.
    pub(super) fn put(self, cell: &mut [u8], column: usize, group: &Group) {
        for (k, &code) in group.codes.iter().enumerate() {
            let (pair, word) = (k / 2, 2 * column + k % 2);
            match self.width {
                CodeWidth::Four | CodeWidth::Five => {
                    cell[pair / 4 * 64 + word * 2 + pair % 4 / 2] |= (code & 15) << (pair % 2 * 4);
                    if self.width == CodeWidth::Five {
                        cell[256 + word * 2 + pair / 8] |= (code >> 4) << (pair % 8);
                    }
                }
                CodeWidth::Eight => cell[pair * 32 + k % 2 * LANES + column] = code,
            }
        }
        self.put_scales(cell, column, group);
    }

    /// And minima.
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

    /// What each code stands for, as bf16; codes of 4 bits twice, so that the bit above them does not matter.
    pub(super) fn table(self) -> [bf16; 32] {
        let codes = if self.width == CodeWidth::Four { 16 } else { 32 };
        std::array::from_fn(|i| {
            let value = (i % codes) as f32 - f32::from(self.zero);
            bf16::from_bits((value.to_bits() >> 16) as u16)
        })
    }
}
