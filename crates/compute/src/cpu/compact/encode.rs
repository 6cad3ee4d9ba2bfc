//! Which exponents a panel's codes stand for, and tiles made of such codes.

#![allow(clippy::needless_range_loop, reason = "eight weights are done side by side")]

use half::bf16;

use super::expand::{RUN, Tables, place};
use super::{SIGNIFICAND_BYTES, TILE_BYTES};
use crate::cpu::pairs::TILE;

/// Code 0 is exponent 0, that of zero; code c is exponent `below` + c.
#[derive(Clone, Copy)]
pub(crate) struct Exponents {
    below: u16,
}

/// Codes beside zero's.
const CODES: u16 = 15;

/// A weight with another exponent.
pub(super) struct Exception {
    /// Among the tiles of its panel.
    pub(super) at: u32,
    pub(super) bits: u16,
}

impl Exponents {
    /// Those that most of these weights have.
    pub(crate) fn of(weights: &[bf16]) -> Self {
        // Of many tiles a part tells as much as all.
        let step = if weights.len() < 16 * TILE { 1 } else { 4 };
        let mut counts = [0_usize; 256];
        for weights in weights.chunks(TILE).step_by(step) {
            for weight in weights {
                counts[usize::from((weight.to_bits() >> 7) as u8)] += 1;
            }
        }
        let covered = |below: &u16| counts[usize::from(*below) + 1..][..usize::from(CODES)].iter().sum::<usize>();
        Self { below: (0..=255 - CODES).max_by_key(covered).unwrap_or(0) }
    }

    /// How many of these weights are exceptions.
    pub(crate) fn exceptions(self, weights: &[bf16]) -> usize {
        weights.iter().filter(|weight| self.code(weight.to_bits()).is_none()).count()
    }

    fn code(self, bits: u16) -> Option<u8> {
        let code = self.code_or_more(bits);
        (code <= CODES).then_some(code as u8)
    }

    /// More than all codes for an exception.
    #[inline(always)]
    fn code_or_more(self, bits: u16) -> u16 {
        let exponent = bits >> 7 & 0xff;
        // Exponents that are too small wrap around.
        let above = exponent.wrapping_sub(self.below + 1).saturating_add(1);
        if exponent == 0 { 0 } else { above }
    }

    pub(super) fn tables(self) -> Tables {
        Tables::new(std::array::from_fn(|code| if code == 0 { 0 } else { self.below as u8 + code as u8 }))
    }
}

/// Writes a tile that is zero so far; exceptions are told with their place in it.
pub(super) fn encode(
    weights: &[bf16; TILE],
    exponents: Exponents,
    tile: &mut [u8; TILE_BYTES],
    mut exception: impl FnMut(usize, u16),
) {
    let (significands, codes) = tile.split_at_mut(SIGNIFICAND_BYTES);
    let (significands, codes) = (significands.as_chunks_mut::<RUN>().0, codes.as_chunks_mut::<RUN>().0);
    // What lies side by side is done side by side.
    for (run, weights) in weights.as_chunks::<RUN>().0.iter().enumerate() {
        let place = place(run * RUN);
        let (significands, codes) = (&mut significands[place.significand / RUN], &mut codes[place.code / RUN]);
        let (mut found, mut largest) = ([0; RUN], 0);
        for i in 0..RUN {
            let bits = weights[i].to_bits();
            significands[i] = (bits >> 8 & 0x80 | bits & 0x7f) as u8;
            found[i] = exponents.code_or_more(bits);
            largest = found[i].max(largest);
        }
        if largest > CODES {
            for i in 0..RUN {
                if found[i] > CODES {
                    found[i] = 0;
                    exception(run * RUN + i, weights[i].to_bits());
                }
            }
        }
        for i in 0..RUN {
            codes[i] |= (found[i] as u8) << place.shift;
        }
    }
}
