//! One or two rows, multiplied with packed blocks as these are read: expanding them to memory first takes longer.

mod block;
mod superblock;

use std::arch::x86_64::*;

use self::block::OneBlock;
use self::superblock::Superblock;
use super::super::expanded_block::PREFETCH_BYTES;
use super::super::product::IntegerProduct;
use super::{Dots, begin, end};
use crate::weights::quant::format::QuantFormat;

/// The most rows that are multiplied without expanding blocks first.
pub(in super::super) const FEW_ROWS: usize = 2;

/// Blocks that share scales, of one panel: 16 columns. A block is 32 k.
trait BlockGroup {
    const BLOCKS: usize;
    /// Parts of a block with scales of their own.
    const PARTS: usize;
    type Format: Copy;

    /// Group `i` of the panel at `data`.
    ///
    /// # Safety
    /// The machine has AVX-512, and all of the group is readable while this is used.
    unsafe fn at(format: Self::Format, data: *const u8, i: usize) -> Self;

    /// Half of block `number`: its groups of four k. With two parts, two groups of each.
    ///
    /// # Safety
    /// The machine has AVX-512.
    unsafe fn half(&self, number: usize, half: usize) -> [__m512i; 4];

    /// Scales and minima of a part, counted from the first block on.
    ///
    /// # Safety
    /// As above.
    unsafe fn scales(&self, part: usize) -> (__m512, __m512);

    /// Bytes to be fetched with block `number`.
    fn bytes(&self, number: usize) -> (*const u8, usize);
}

/// Multiplies rows with the panel at `data`.
///
/// # Safety
/// Pointers are good for the shapes that the product states, its whole panel is readable at `data`, and the machine has AVX-512
/// with VNNI.
#[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
pub(in super::super) unsafe fn few_rows(product: &IntegerProduct, format: QuantFormat, data: *const u8) {
    // SAFETY: the caller's promise.
    unsafe {
        match product.rows {
            1 => rows::<1>(product, format, data),
            _ => rows::<FEW_ROWS>(product, format, data),
        }
    }
}

/// # Safety
/// As above, with `R` rows.
#[inline(always)]
unsafe fn rows<const R: usize>(product: &IntegerProduct, format: QuantFormat, data: *const u8) {
    // SAFETY: the caller's promise.
    unsafe {
        match format {
            QuantFormat::Blocks(format) => multiply::<OneBlock, R>(product, format, data),
            QuantFormat::Superblocks(format) => multiply::<Superblock, R>(product, format, data),
        }
    }
}

/// # Safety
/// As above.
#[inline(always)]
unsafe fn multiply<G: BlockGroup, const R: usize>(product: &IntegerProduct, format: G::Format, data: *const u8) {
    // SAFETY: the caller's promise; the panel has a group for each that the product has of left blocks.
    unsafe {
        let mut sums = begin::<R>(product);
        for (i, left) in product.left().chunks(G::BLOCKS).enumerate() {
            let group = G::at(format, data, i);
            for (number, left) in left.iter().enumerate() {
                let (bytes, count) = group.bytes(number);
                for line in (0..count).step_by(64) {
                    _mm_prefetch::<_MM_HINT_T0>(bytes.wrapping_add(PREFETCH_BYTES + line).cast());
                }
                // Two chains in any case: with one a single row would wait for its own sums.
                let mut dots = [Dots::<R>::zero(), Dots::<R>::zero()];
                for half in 0..2 {
                    let [a, b, c, d] = group.half(number, half);
                    dots[0].add(left, 4 * half, a);
                    dots[0].add(left, 4 * half + 1, b);
                    dots[1].add(left, 4 * half + 2, c);
                    dots[1].add(left, 4 * half + 3, d);
                }
                let [first, second] = dots;
                if G::PARTS == 1 {
                    first.plus(&second).scale(left, 0, group.scales(number), &mut sums);
                } else {
                    first.scale(left, 1, group.scales(2 * number), &mut sums);
                    second.scale(left, 2, group.scales(2 * number + 1), &mut sums);
                }
            }
        }
        end(product, &sums);
    }
}
