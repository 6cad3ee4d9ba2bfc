//! The table of high bytes of a panel, and tiles of indices into it.

#![allow(clippy::needless_range_loop, reason = "eight weights are done side by side")]

use half::bf16;

use super::expand::{RUN, place};
use super::{LOW_BYTES, TILE_BYTES};
use crate::weights::layout::TILE;

/// By index, whose highest bit is the sign. The other bits: 0 is zero's high byte, i is `below` + i.
#[derive(Clone, Copy)]
pub(crate) struct HighBytes {
    pub(super) by_index: [u8; 16],
    below: u8,
}

/// High bytes of either sign, beside zero's.
const MAX_INDEX: u8 = 7;
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
        // A quarter of many tiles suffices.
        let step = if weights.len() < 16 * TILE { 1 } else { 4 };
        let mut counts = [0_usize; SIGN as usize];
        for weights in weights.chunks(TILE).step_by(step) {
            for weight in weights {
                counts[usize::from(high_byte(*weight) & !SIGN)] += 1;
            }
        }
        let covered = |below: &u8| counts[usize::from(*below) + 1..][..usize::from(MAX_INDEX)].iter().sum::<usize>();
        let below = (0..SIGN - MAX_INDEX).max_by_key(covered).unwrap_or(0);
        let by_index = std::array::from_fn(|index| {
            let (sign, index) = ((index as u8) << 4 & SIGN, index as u8 & MAX_INDEX);
            sign | if index == 0 { 0 } else { below + index }
        });
        Self { by_index, below }
    }

    /// How many of these weights are exceptions.
    pub(crate) fn exceptions(self, weights: &[bf16]) -> usize {
        weights.iter().filter(|&&weight| self.index_or_more(high_byte(weight)) > MAX_INDEX).count()
    }

    /// The index without its sign; more than [`MAX_INDEX`] for an exception.
    #[inline(always)]
    fn index_or_more(self, high_byte: u8) -> u8 {
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

/// Writes a tile that is zero so far; exceptions are reported with their place in it.
pub(super) fn encode(
    weights: &[bf16; TILE],
    high_bytes: HighBytes,
    tile: &mut [u8; TILE_BYTES],
    mut exception: impl FnMut(usize, u16),
) {
    let (low, indices) = tile.split_at_mut(LOW_BYTES);
    let (low, indices) = (low.as_chunks_mut::<RUN>().0, indices.as_chunks_mut::<RUN>().0);
    // What lies side by side is done side by side.
    for (run, weights) in weights.as_chunks::<RUN>().0.iter().enumerate() {
        let place = place(run * RUN);
        let (low, indices) = (&mut low[place.low / RUN], &mut indices[place.index / RUN]);
        let (mut found, mut largest) = ([0; RUN], 0);
        for i in 0..RUN {
            low[i] = weights[i].to_bits() as u8;
            found[i] = high_bytes.index_or_more(high_byte(weights[i]));
            largest = found[i].max(largest);
        }
        if largest > MAX_INDEX {
            for i in 0..RUN {
                if found[i] > MAX_INDEX {
                    found[i] = 0;
                    exception(run * RUN + i, weights[i].to_bits());
                }
            }
        }
        for i in 0..RUN {
            indices[i] |= (found[i] | (high_byte(weights[i]) & SIGN) >> 4) << place.shift;
        }
    }
}
