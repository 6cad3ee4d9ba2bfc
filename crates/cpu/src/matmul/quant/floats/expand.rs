//! A block's codes as a tile of bf16.

use half::bf16;

use super::super::cell_format::CellFormat;
use super::codes::biased;
use super::format::Scaled;
use crate::simd::vector::{Kernel, LANES, Lanes};
use crate::weights::layout::GROUP;

/// `to` = a block of a panel that begins at `cells`.
pub(super) struct Expand {
    pub(super) format: CellFormat,
    pub(super) cells: *const u8,
    pub(super) block: usize,
    pub(super) to: *mut bf16,
}

/// The same for each pair of k. Where lanes are vectors their numbers are constants: shifts of codes want some.
macro_rules! for_each_pair {
    ($lanes:ident, |$pair:ident| $body:expr) => {
        if $lanes::TABLE_BYTES == 0 {
            for $pair in 0..16 {
                $body
            }
        } else {
            for_each_pair!($pair, $body, 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15);
        }
    };
    ($pair:ident, $body:expr, $($number:literal)*) => {
        $({
            let $pair: usize = $number;
            $body
        })*
    };
}
pub(super) use for_each_pair;

/// Picks a function by the bits of a code.
macro_rules! by_bits {
    ($bits:expr, $function:ident::<$($generic:tt),*>($($argument:expr),*)) => {
        match $bits {
            2 => $function::<$($generic),*, 2>($($argument),*),
            3 => $function::<$($generic),*, 3>($($argument),*),
            4 => $function::<$($generic),*, 4>($($argument),*),
            5 => $function::<$($generic),*, 5>($($argument),*),
            6 => $function::<$($generic),*, 6>($($argument),*),
            _ => $function::<$($generic),*, 8>($($argument),*),
        }
    };
}
pub(super) use by_bits;

/// Pointers are good for a block and a tile: whoever makes one says why.
impl Kernel for Expand {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self) {
        // SAFETY: an existing block, and a whole tile.
        unsafe { by_bits!(self.format.bits(), tile::<L>(&self)) };
    }
}

/// # Safety
/// Pointers are good.
#[inline(always)]
unsafe fn tile<L: Lanes, const BITS: usize>(expand: &Expand) {
    // SAFETY: the caller's promise.
    unsafe {
        let (codes, scaled) = expand.format.block::<L, BITS>(expand.cells, expand.block);
        for_each_pair!(L, |pair| {
            let [even, odd] = weights::<L, BITS>(codes, &scaled, pair);
            L::store_bf16_pairs(even, odd, expand.to.add(pair * 2 * LANES).cast());
        });
    }
}

/// Of 16 columns at a pair of k, before they are cut off.
///
/// # Safety
/// The codes of a block are readable.
#[inline(always)]
pub(super) unsafe fn weights<L: Lanes, const BITS: usize>(
    codes: *const u8,
    scaled: &[Scaled<L>; 2],
    pair: usize,
) -> [L; 2] {
    let Scaled { scale, offsets } = scaled[pair / (GROUP / 4)];
    // SAFETY: the caller's promise.
    unsafe {
        let ((even, place), (odd, odd_place)) =
            (biased::<L, BITS>(codes, 2 * pair), biased::<L, BITS>(codes, 2 * pair + 1));
        [even.fma(scale, offsets[place]), odd.fma(scale, offsets[odd_place])]
    }
}
