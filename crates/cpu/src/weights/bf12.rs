//! Weights of bf16 in twelve bits each, without loss: a step that waits for memory reads a quarter less of it.
//!
//! ```text
//!   bf16    high byte: sign | exponent, upper 7 bits       low byte: its last bit | mantissa, 7 bits
//!   tile    512 low bytes | 256 bytes: codes of high bytes, two in each
//! ```
//!
//! A tile is 16 columns × 32 k. Nearly all weights of a panel have one of sixteen high bytes: of either sign, that of zero or one of
//! seven that follow each other, for fourteen exponents. The few others are written over what a tile expands to.

mod encode;
mod expand;
mod few_rows;

use std::ops::Range;
use std::sync::{Arc, OnceLock};

use half::bf16;

pub(crate) use self::encode::HighBytes;
use self::encode::{Exception, encode};
use self::expand::expand;
pub(crate) use self::few_rows::{MOST_FROM_TILES, is_read_in_registers};
use crate::memory::region::Region;
use crate::simd::vector::Lanes;
use crate::weights::chunks::Chunks;
use crate::weights::layout::TILE;
use baton_backend::BackendError;

/// Of one tile.
const LOW_BYTES: usize = TILE;
const CODE_BYTES: usize = TILE / 2;
pub(crate) const TILE_BYTES: usize = LOW_BYTES + CODE_BYTES;

/// Panels that are read side by side.
const PAIR: usize = 2;
/// So far ahead tiles are asked for.
const PREFETCH_TILES: usize = 3;
const LINE: usize = 64;

/// A matrix of panels, each as deep as so many tiles.
pub(crate) struct Compact {
    memory: Arc<Region>,
    offset: usize,
    panels: Vec<OnceLock<Panel>>,
    blocks: usize,
}

struct Panel {
    high_bytes: HighBytes,
    exceptions: Box<[Exception]>,
}

impl Compact {
    /// Panels are to be packed before anybody reads them.
    pub(crate) fn new(chunks: &mut Chunks, panels: usize, blocks: usize) -> Result<Self, BackendError> {
        let (memory, offset) = chunks.take(panels * blocks * TILE_BYTES)?;
        Ok(Self { memory, offset, panels: std::iter::repeat_with(OnceLock::new).take(panels).collect(), blocks })
    }

    /// Of memory.
    pub(crate) fn bytes(&self) -> usize {
        let exceptions = self.panels.iter().filter_map(OnceLock::get).map(|panel| size_of_val(&*panel.exceptions));
        self.panels.len() * self.blocks * TILE_BYTES + exceptions.sum::<usize>()
    }

    /// Once for each panel: `weights` are its tiles.
    pub(crate) fn pack(&self, panel: usize, weights: &[bf16]) {
        assert!(weights.len() == self.blocks * TILE && self.panels[panel].get().is_none());
        let high_bytes = HighBytes::of(weights);
        let mut exceptions = Vec::new();
        for (block, weights) in weights.as_chunks().0.iter().enumerate() {
            // SAFETY: this tile, which the caller alone uses now.
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
        self.place(panel, block)
    }

    /// Where a tile lies, or would lie behind the last one.
    pub(crate) fn place(&self, panel: usize, block: usize) -> *const u8 {
        self.memory.as_ptr().wrapping_add(self.offset + (panel * self.blocks + block) * TILE_BYTES)
    }

    /// Tiles of one panel or two, beginning with this block.
    pub(crate) fn reader(&self, panels: Range<usize>, block: usize) -> Reader<'_> {
        assert!((1..=PAIR).contains(&panels.len()));
        let of = |panel: usize| {
            let packed = self.panels[panel].get();
            // Without it the panel would be skipped in silence.
            assert!(packed.is_some(), "panel {panel} is read before it is packed");
            let Panel { high_bytes, exceptions } = packed?;
            let passed = exceptions.partition_point(|exception| exception.at < (block * TILE) as u32);
            Some(PanelReader { next: self.tile(panel, block), high_bytes, exceptions: &exceptions[passed..] })
        };
        let second = if panels.len() == PAIR { of(panels.start + 1) } else { None };
        Reader { block, blocks: self.blocks, asks: true, panels: [of(panels.start), second] }
    }
}

/// Expands tiles in the order in which they lie in memory.
#[derive(Clone)]
pub(crate) struct Reader<'a> {
    block: usize,
    blocks: usize,
    /// For tiles that are still far.
    asks: bool,
    panels: [Option<PanelReader<'a>>; PAIR],
}

#[derive(Clone)]
struct PanelReader<'a> {
    next: *const u8,
    high_bytes: &'a HighBytes,
    /// From the next block on.
    exceptions: &'a [Exception],
}

impl Reader<'_> {
    /// Somebody else asks for what it will read.
    pub(crate) fn without_asking(self) -> Self {
        Self { asks: false, ..self }
    }

    pub(crate) fn panels(&self) -> usize {
        self.panels.iter().flatten().count()
    }

    /// The next `blocks` of each panel, one behind the other, panels `panel_stride` apart.
    ///
    /// # Safety
    /// So many tiles are writable at `to`, and with a second panel as many at `to` + `panel_stride`.
    #[inline(always)]
    pub(crate) unsafe fn next<L: Lanes>(&mut self, blocks: usize, to: *mut bf16, panel_stride: usize) {
        let passed = self.block..self.block + blocks;
        assert!(passed.end <= self.blocks);
        self.block = passed.end;
        for (which, panel) in self.panels.iter_mut().enumerate() {
            let Some(panel) = panel else { continue };
            // SAFETY: the caller's promise.
            let to = unsafe { to.add(which * panel_stride) };
            for (place, block) in passed.clone().enumerate() {
                if self.asks {
                    // At a panel's end those of the next pair are asked for: the neighbour's turn is next, or was before.
                    let is_near_end = block + PREFETCH_TILES >= self.blocks;
                    let ahead = (PREFETCH_TILES + if is_near_end { self.blocks } else { 0 }) * TILE_BYTES;
                    for line in (0..TILE_BYTES).step_by(LINE) {
                        L::prefetch(panel.next.wrapping_add(ahead + line));
                    }
                }
                // SAFETY: a tile of the matrix; the caller's promise.
                unsafe {
                    expand::<L>(panel.next, panel.high_bytes, to.add(place * TILE).cast());
                    panel.next = panel.next.add(TILE_BYTES);
                }
            }
            // SAFETY: the caller's promise.
            unsafe { panel.write_exceptions(&passed, to) };
        }
    }
}

impl PanelReader<'_> {
    /// Those of some blocks. Behind many tiles, not behind each: nobody can foretell whether one has any.
    ///
    /// # Safety
    /// The tiles of the blocks are writable at `to`.
    #[inline(always)]
    unsafe fn write_exceptions(&mut self, blocks: &Range<usize>, to: *mut bf16) {
        let (begin, end) = ((blocks.start * TILE) as u32, (blocks.end * TILE) as u32);
        while let Some((&Exception { at, bits }, others)) =
            self.exceptions.split_first().filter(|(next, _)| next.at < end)
        {
            // SAFETY: those before `begin` were passed, so it is in one of these tiles.
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
    pub(super) fn weight(i: usize, oddities: bool) -> bf16 {
        let noise =
            |i: u64| (i + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29).wrapping_mul(0xd134_2543_de82_ef95);
        let odd = noise(i as u64 + (1 << 40)) >> 32;
        if oddities && odd.is_multiple_of(97) {
            return bf16::from_bits(odd as u16);
        }
        let bell: i64 = (0..4).map(|k| (noise(4 * i as u64 + k) >> 44) as i64 - (1 << 19)).sum();
        bf16::from_f32(bell as f32 / (1 << 25) as f32)
    }

    struct Read<'a>(Reader<'a>, &'a mut [bf16], usize);

    impl Kernel for Read<'_> {
        type Output = ();

        #[inline(always)]
        fn run<L: Lanes>(mut self) {
            let tiles = self.1.len() / TILE / self.2;
            // Some at a time, and what is left of them.
            for block in (0..tiles).step_by(3) {
                let some = (tiles - block).min(3);
                // SAFETY: panels of so many tiles each.
                unsafe { self.0.next::<L>(some, self.1[block * TILE..].as_mut_ptr(), tiles * TILE) };
            }
        }
    }

    #[test]
    fn what_was_packed_is_read() {
        for (panels, oddities) in [(3, false), (3, true), (1, true)] {
            let panel_weights = |panel: usize| -> Vec<bf16> {
                (0..BLOCKS * TILE).map(|i| weight(panel * 100_003 + i, oddities)).collect()
            };
            let compact = Compact::new(&mut Chunks::default(), panels, BLOCKS).unwrap();
            for panel in 0..panels {
                compact.pack(panel, &panel_weights(panel));
            }
            let exceptions = compact.bytes() - panels * BLOCKS * TILE_BYTES;
            assert_eq!(
                exceptions > panels * BLOCKS * TILE / 100 * size_of::<Exception>() / 2,
                oddities,
                "{exceptions}"
            );
            for isa in Isa::available() {
                for (range, first) in [(0..PAIR.min(panels), 0), (0..PAIR.min(panels), 3), (panels - 1..panels, 1)] {
                    let mut read = vec![bf16::NAN; range.len() * (BLOCKS - first) * TILE];
                    isa.run(Read(compact.reader(range.clone(), first), &mut read, range.len()));
                    let expected = range.flat_map(|panel| panel_weights(panel).split_off(first * TILE));
                    let same = read.iter().zip(expected).all(|(got, expected)| got.to_bits() == expected.to_bits());
                    assert!(same, "{isa}, {panels} panels, from block {first} on");
                }
            }
        }
    }

    #[test]
    fn any_bits_come_back() {
        let every: Vec<bf16> = (0..=u16::MAX).map(bf16::from_bits).collect();
        let compact = Compact::new(&mut Chunks::default(), 1, every.len() / TILE).unwrap();
        compact.pack(0, &every);
        for isa in Isa::available() {
            let mut read = vec![bf16::ZERO; every.len()];
            isa.run(Read(compact.reader(0..1, 0), &mut read, 1));
            assert!(read.iter().zip(&every).all(|(got, expected)| got.to_bits() == expected.to_bits()), "{isa}");
        }
    }
}
