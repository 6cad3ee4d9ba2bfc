//! Weights of bf16 in twelve bits each, without loss: a step that waits for memory reads a quarter less of it.
//!
//! ```text
//!   bf16    high byte: sign | exponent, upper 7 bits       low byte: its last bit | mantissa, 7 bits
//!   tile    512 low bytes | 256 bytes: indices of high bytes, two in each
//! ```
//!
//! A tile is 16 columns × 32 k. Nearly all weights of a panel have one of sixteen high bytes: of either sign, that of zero or one of
//! seven that follow each other, for fourteen exponents. The few others are written over what a tile expands to.

mod encode;
mod expand;

use std::sync::{Arc, OnceLock};

use half::bf16;

pub(crate) use self::encode::HighBytes;
use self::encode::{Exception, encode};
use self::expand::expand;
use crate::memory::region::Region;
use crate::simd::vector::{LANES, Lanes};
use crate::weights::chunks::Chunks;
use crate::weights::format::WeightFormat;
use crate::weights::layout::{TILE, pair_stride};
use baton_backend::BackendError;

/// Bytes of one tile.
const LOW_BYTES: usize = TILE;
const INDEX_BYTES: usize = TILE / 2;
pub(crate) const TILE_BYTES: usize = LOW_BYTES + INDEX_BYTES;

const LINE: usize = 64;

/// A matrix of panels, each `blocks` tiles deep.
pub(crate) struct Bf12 {
    memory: Arc<Region>,
    offset: usize,
    panels: Vec<OnceLock<Panel>>,
    blocks: usize,
}

struct Panel {
    high_bytes: HighBytes,
    exceptions: Box<[Exception]>,
}

impl Bf12 {
    /// Panels must be packed before they are read.
    pub(crate) fn new(chunks: &mut Chunks, panels: usize, blocks: usize) -> Result<Self, BackendError> {
        let (memory, offset) = chunks.take(panels * blocks * TILE_BYTES)?;
        Ok(Self { memory, offset, panels: std::iter::repeat_with(OnceLock::new).take(panels).collect(), blocks })
    }

    /// Bytes of memory.
    pub(crate) fn bytes(&self) -> usize {
        let exceptions = self.panels.iter().filter_map(OnceLock::get).map(|panel| size_of_val(&*panel.exceptions));
        self.panels.len() * self.blocks * TILE_BYTES + exceptions.sum::<usize>()
    }

    /// Packs a panel, once: `weights` are its tiles.
    ///
    /// # Safety
    /// No other thread packs this panel.
    pub(crate) unsafe fn pack(&self, panel: usize, weights: &[bf16]) {
        assert!(weights.len() == self.blocks * TILE && self.panels[panel].get().is_none());
        let high_bytes = HighBytes::of(weights);
        let mut exceptions = Vec::new();
        for (block, weights) in weights.as_chunks().0.iter().enumerate() {
            // SAFETY: a tile of this panel, which no other thread packs, and which is not read before it is set.
            let tile = unsafe { &mut *self.tile(panel, block).cast_mut().cast::<[u8; TILE_BYTES]>() };
            encode(weights, high_bytes, tile, |i, bits| {
                exceptions.push(Exception { at: (block * TILE + i) as u32, bits });
            });
        }
        let packed = self.panels[panel].set(Panel { high_bytes, exceptions: exceptions.into() });
        assert!(packed.is_ok(), "panel {panel} is packed twice");
    }

    fn tile(&self, panel: usize, block: usize) -> *const u8 {
        assert!(panel < self.panels.len() && block <= self.blocks);
        self.address(panel, block)
    }

    /// The address of a tile, or of what follows the last one.
    pub(crate) fn address(&self, panel: usize, block: usize) -> *const u8 {
        self.memory.as_ptr().wrapping_add(self.offset + (panel * self.blocks + block) * TILE_BYTES)
    }

    /// Reads a panel from this block on, with a prefetch distance in bytes.
    #[inline(always)]
    pub(crate) fn reader(&self, panel: usize, block: usize, ahead: Option<usize>) -> Bf12Panel<'_> {
        let next = self.tile(panel, block);
        let (high_bytes, exceptions): (_, &[Exception]) = match self.panels[panel].get() {
            Some(packed) => (&packed.high_bytes, &packed.exceptions),
            None => unreachable!("panel {panel} is read before it is packed"),
        };
        let passed = exceptions.partition_point(|exception| exception.at < (block * TILE) as u32);
        let exceptions = &exceptions[passed..];
        Bf12Panel { block, next, ahead, high_bytes, exceptions, tile: ExpandedTile([bf16::ZERO; TILE]) }
    }
}

/// Reads the tiles of a panel.
pub(crate) struct Bf12Panel<'a> {
    block: usize,
    next: *const u8,
    /// Prefetch distance in bytes.
    ahead: Option<usize>,
    high_bytes: &'a HighBytes,
    /// From the next block on.
    exceptions: &'a [Exception],
    /// The last block that was prepared.
    tile: ExpandedTile,
}

#[repr(align(64))]
struct ExpandedTile([bf16; TILE]);

impl WeightFormat for Bf12Panel<'_> {
    type Block<L: Lanes> = *const bf16;

    #[inline(always)]
    unsafe fn next<L: Lanes>(&mut self) -> *const bf16 {
        let tile = self.tile.0.as_mut_ptr();
        // SAFETY: the caller's promise, and room for a tile.
        unsafe { self.expand::<L>(1, tile) };
        tile
    }

    #[inline(always)]
    unsafe fn pair<L: Lanes>(block: &*const bf16, pair: usize) -> [L; 2] {
        // SAFETY: the caller's promise.
        unsafe {
            let columns = block.add(pair * pair_stride(LANES)).cast();
            [L::load_bf16_even(columns), L::load_bf16_odd(columns)]
        }
    }

    #[inline(always)]
    unsafe fn expand<L: Lanes>(&mut self, blocks: usize, to: *mut bf16) {
        for block in 0..blocks {
            if let Some(ahead) = self.ahead {
                for line in (0..TILE_BYTES).step_by(LINE) {
                    L::prefetch(self.next.wrapping_add(ahead + line));
                }
            }
            // SAFETY: the caller's promise.
            unsafe {
                expand::<L>(self.next, self.high_bytes, to.add(block * TILE).cast());
                self.next = self.next.add(TILE_BYTES);
            }
        }
        let (begin, end) = ((self.block * TILE) as u32, ((self.block + blocks) * TILE) as u32);
        self.block += blocks;
        // Behind many tiles, not behind each: a branch on whether one has any cannot be predicted.
        while let Some((&Exception { at, bits }, others)) =
            self.exceptions.split_first().filter(|(next, _)| next.at < end)
        {
            // SAFETY: earlier ones were passed, so it is in one of these tiles.
            unsafe { to.add((at - begin) as usize).write(bf16::from_bits(bits)) };
            self.exceptions = others;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simd::isa::Isa;
    use crate::simd::vector::Kernel;

    const BLOCKS: usize = 7;

    /// A bell around zero, as weights are, with some of everything else that bf16 has.
    fn weight(i: usize, oddities: bool) -> bf16 {
        let noise =
            |i: u64| (i + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29).wrapping_mul(0xd134_2543_de82_ef95);
        let odd = noise(i as u64 + (1 << 40)) >> 32;
        if oddities && odd.is_multiple_of(97) {
            return bf16::from_bits(odd as u16);
        }
        let bell: i64 = (0..4).map(|k| (noise(4 * i as u64 + k) >> 44) as i64 - (1 << 19)).sum();
        bf16::from_f32(bell as f32 / (1 << 25) as f32)
    }

    struct Read<'a>(Bf12Panel<'a>, &'a mut [bf16]);

    impl Kernel for Read<'_> {
        type Output = ();

        #[inline(always)]
        fn run<L: Lanes>(mut self) {
            // Some at a time, and what is left of them.
            for tiles in self.1.chunks_mut(3 * TILE) {
                // SAFETY: the panel has as many.
                unsafe { self.0.expand::<L>(tiles.len() / TILE, tiles.as_mut_ptr()) };
            }
        }
    }

    #[test]
    fn what_was_packed_is_read() {
        for (panels, oddities) in [(3, false), (3, true), (1, true)] {
            let panel_weights = |panel: usize| -> Vec<bf16> {
                (0..BLOCKS * TILE).map(|i| weight(panel * 100_003 + i, oddities)).collect()
            };
            let bf12 = Bf12::new(&mut Chunks::default(), panels, BLOCKS).unwrap();
            for panel in 0..panels {
                // SAFETY: there is no other thread.
                unsafe { bf12.pack(panel, &panel_weights(panel)) };
            }
            let exceptions = bf12.bytes() - panels * BLOCKS * TILE_BYTES;
            assert_eq!(
                exceptions > panels * BLOCKS * TILE / 100 * size_of::<Exception>() / 2,
                oddities,
                "{exceptions}"
            );
            for isa in Isa::available() {
                for (panel, first) in (0..panels).flat_map(|panel| [(panel, 0), (panel, 3)]) {
                    let mut read = vec![bf16::NAN; (BLOCKS - first) * TILE];
                    isa.run(Read(bf12.reader(panel, first, Some(4096)), &mut read));
                    let expected = panel_weights(panel).split_off(first * TILE);
                    let same = read.iter().zip(expected).all(|(got, expected)| got.to_bits() == expected.to_bits());
                    assert!(same, "{isa}, panel {panel}, from block {first} on");
                }
            }
        }
    }

    #[test]
    fn any_bits_come_back() {
        let every: Vec<bf16> = (0..=u16::MAX).map(bf16::from_bits).collect();
        let bf12 = Bf12::new(&mut Chunks::default(), 1, every.len() / TILE).unwrap();
        // SAFETY: there is no other thread.
        unsafe { bf12.pack(0, &every) };
        for isa in Isa::available() {
            let mut read = vec![bf16::ZERO; every.len()];
            isa.run(Read(bf12.reader(0, 0, None), &mut read));
            assert!(read.iter().zip(&every).all(|(got, expected)| got.to_bits() == expected.to_bits()), "{isa}");
        }
    }
}
