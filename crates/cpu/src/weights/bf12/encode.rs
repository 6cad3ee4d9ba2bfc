//! Which high bytes a panel's codes stand for, and tiles made of such codes.

#![allow(clippy::needless_range_loop, reason = "eight weights are done side by side")]

use half::bf16;

use super::expand::{RUN, place};
use super::{LOW_BYTES, TILE_BYTES};
use crate::weights::layout::TILE;

/// By code, whose highest bit is the sign. The others: 0 is zero's high byte, c is `below` + c.
#[derive(Clone, Copy)]
pub(crate) struct HighBytes {
    pub(super) by_code: [u8; 16],
    below: u8,
}

/// Of either sign, beside zero's.
const CODES: u8 = 7;
const SIGN: u8 = 0x80;

/// A weight with another high byte.
pub(super) struct Exception {
    /// Among the tiles of its panel.
    pub(super) at: u32,
    pub(super) bits: u16,
}

impl HighBytes {
    /// Those that most of these weights have.
    pub(crate) fn of(weights: &[bf16]) -> Self {
        // Of many tiles a part represents all.
        let step = if weights.len() < 16 * TILE { 1 } else { 4 };
        let mut counts = [0_usize; SIGN as usize];
        for weights in weights.chunks(TILE).step_by(step) {
            for weight in weights {
                counts[usize::from(high_byte(*weight) & !SIGN)] += 1;
            }
        }
        let covered = |below: &u8| counts[usize::from(*below) + 1..][..usize::from(CODES)].iter().sum::<usize>();
        let below = (0..SIGN - CODES).max_by_key(covered).unwrap_or(0);
        let by_code = std::array::from_fn(|code| {
            let (sign, code) = ((code as u8) << 4 & SIGN, code as u8 & CODES);
            sign | if code == 0 { 0 } else { below + code }
        });
        Self { by_code, below }
    }

    /// How many of these weights are exceptions.
    pub(crate) fn exceptions(self, weights: &[bf16]) -> usize {
        weights.iter().filter(|&&weight| self.code_or_more(high_byte(weight)) > CODES).count()
    }

    /// Without its sign. More than all codes for an exception.
    #[inline(always)]
    fn code_or_more(self, high_byte: u8) -> u8 {
        let exponent = high_byte & !SIGN;
        // Those that are too small wrap around.
        let above = exponent.wrapping_sub(self.below + 1).saturating_add(1);
        if exponent == 0 { 0 } else { above }
    }
}

#[inline(always)]
fn high_byte(weight: bf16) -> u8 {
    (weight.to_bits() >> 8) as u8
}

/// Writes a tile that is zero so far; exceptions are passed with their place in it.
pub(super) fn encode(
    weights: &[bf16; TILE],
    high_bytes: HighBytes,
    tile: &mut [u8; TILE_BYTES],
    mut exception: impl FnMut(usize, u16),
) {
    let (low, codes) = tile.split_at_mut(LOW_BYTES);
    let (low, codes) = (low.as_chunks_mut::<RUN>().0, codes.as_chunks_mut::<RUN>().0);
    // What lies side by side is done side by side.
    for (run, weights) in weights.as_chunks::<RUN>().0.iter().enumerate() {
        let place = place(run * RUN);
        let (low, codes) = (&mut low[place.low / RUN], &mut codes[place.code / RUN]);
        let (mut found, mut largest) = ([0; RUN], 0);
        for i in 0..RUN {
            low[i] = weights[i].to_bits() as u8;
            found[i] = high_bytes.code_or_more(high_byte(weights[i]));
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
            codes[i] |= (found[i] | (high_byte(weights[i]) & SIGN) >> 4) << place.shift;
        }
    }
}
