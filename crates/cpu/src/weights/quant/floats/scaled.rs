//! Scales and offsets of a block, as bf16 matmuls use them.

use super::super::format::QuantFormat;
use super::super::packing::packed_bytes;
use super::super::superblock::SUPER_BLOCKS;
use super::unpack::{POSITIONS, bias, positions};
use crate::simd::vector::Lanes;

/// The scales and offsets of 16 columns for 16 k: a weight is `biased value · scale + offset`, with the offset of the value's position.
#[derive(Clone, Copy)]
pub(crate) struct Scaled<L> {
    pub(crate) scale: L,
    pub(crate) offsets: [L; POSITIONS],
}

/// Makes up for what truncation to bf16 takes from weights around zero, on average: 0.72 of half a last place. It would be all of
/// that half if every mantissa began with the digit 1.
pub(crate) const TRUNCATION_FACTOR: f32 = 1.0 + 0.72 / 256.0;

impl<L: Lanes> Scaled<L> {
    #[inline(always)]
    fn new<const BITS: usize>((scale, minimum): (L, L)) -> Self {
        let factor = L::splat(TRUNCATION_FACTOR);
        let (scale, minimum) = (scale.mul(factor), minimum.mul(factor));
        let mut offsets = [minimum; POSITIONS];
        for (position, offset) in offsets.iter_mut().enumerate().take(positions(BITS)) {
            *offset = scale.fma(L::splat(-bias(BITS, position)), minimum);
        }
        Self { scale, offsets }
    }
}

impl QuantFormat {
    /// The packed values of block `number` of the panel at `data`, and the scales of its halves. Values have `BITS` bits, a
    /// parameter so that shifts are constants.
    ///
    /// # Safety
    /// The panel has the block.
    #[inline(always)]
    pub(crate) unsafe fn block<L: Lanes, const BITS: usize>(
        self,
        data: *const u8,
        number: usize,
    ) -> (*const u8, [Scaled<L>; 2]) {
        // SAFETY: the caller's promise; scales lie behind the values of a block.
        unsafe {
            match self {
                Self::Blocks(format) => {
                    let block = data.add(number * format.block_bytes());
                    let scaled = Scaled::new::<BITS>(format.scales::<L>(block.add(format.packed_bytes())));
                    (block, [scaled; 2])
                }
                Self::Superblocks(format) => {
                    let superblock = data.add(number / SUPER_BLOCKS * format.superblock_bytes());
                    let scales = superblock.add(SUPER_BLOCKS * packed_bytes(BITS));
                    let block = number % SUPER_BLOCKS;
                    let first = Scaled::new::<BITS>(format.scales::<L>(scales, 2 * block));
                    let second = Scaled::new::<BITS>(format.scales::<L>(scales, 2 * block + 1));
                    (superblock.add(block * packed_bytes(BITS)), [first, second])
                }
            }
        }
    }
}
