//! How codes lie in a supercell: in words of 32 bits, sixteen of them, one per column, side by side.
//!
//! ```text
//!   2 bits   16 codes in one word, the first lowest
//!   6 bits   16 codes in three words: five in each, the first lowest, and two bits of the last in the top of each
//!   3 bits   32 codes in three words: ten in each, and two bits of the last two in the top of each
//! ```
//!
//! Behind them small scales, bytes `[group][column]`. Where there are small minima, both are four bits: eight groups in one
//! word, scales in two words per column, minima in two more.

use super::{SMALL_GROUP, SMALL_GROUPS, SUPER_DEPTH, Superblock};
use crate::cpu::lanes::{BITS_BIAS, LANES, Lanes};

/// Of 16 columns.
const WORD_BYTES: usize = LANES * size_of::<u32>();
const SMALL_BYTES: usize = SMALL_GROUPS * LANES;
const HALVES_BYTES: usize = LANES * 2;
/// Groups in one word of four bits each.
const NIBBLES: usize = 8;

/// Codes have `BITS` bits.
#[derive(Clone, Copy)]
pub(super) struct Supercell<const BITS: usize>(*const u8);

/// 16 k of 16 columns.
pub(super) struct SmallGroup<L, const BITS: usize> {
    words: *const u32,
    /// Its first code behind `words`.
    first: usize,
    scale: L,
    offset: L,
}

impl<const BITS: usize> Supercell<BITS> {
    pub(super) const MINIMA: bool = BITS == 2;
    /// The code that stands for zero.
    pub(super) const ZERO: usize = if Self::MINIMA { 0 } else { 1 << (BITS - 1) };
    const WORD_CODES: usize = 32 / BITS;
    /// Codes that fill whole words.
    const UNIT: usize = if BITS == 3 { 32 } else { 16 };
    const UNIT_WORDS: usize = Self::UNIT * BITS / 32;
    const SMALL: usize = SUPER_DEPTH * BITS / 32 * WORD_BYTES;
    const SCALES: usize = Self::SMALL + SMALL_BYTES;
    const MINIMUM: usize = Self::SCALES + HALVES_BYTES;
    /// Whole cache lines.
    pub(super) const BYTES: usize = (Self::MINIMUM + if Self::MINIMA { HALVES_BYTES } else { 0 }).next_multiple_of(64);

    /// # Safety
    /// A whole supercell is readable as long as what is made here is in use.
    #[inline(always)]
    pub(super) unsafe fn at(cell: *const u8) -> Self {
        Self(cell)
    }

    pub(super) fn put(cell: &mut [u8], column: usize, superblock: &Superblock) {
        for (unit, codes) in superblock.codes.chunks(Self::UNIT).enumerate() {
            let first = unit * Self::UNIT_WORDS;
            let mut left_over = 0;
            for (i, &code) in codes.iter().enumerate() {
                match i.checked_sub(Self::UNIT_WORDS * Self::WORD_CODES) {
                    None => put_bits(cell, first + i / Self::WORD_CODES, column, code, i % Self::WORD_CODES * BITS),
                    Some(last) => left_over |= code << (last * BITS),
                }
            }
            for word in 0..Self::UNIT_WORDS {
                put_bits(cell, first + word, column, left_over >> (2 * word) & 3, 30);
            }
        }
        let small = &mut cell[Self::SMALL..];
        for group in 0..SMALL_GROUPS {
            let (scale, minimum) = (superblock.small_scales[group] as u8, superblock.small_minima[group] as u8);
            if Self::MINIMA {
                put_bits(small, group / NIBBLES, column, scale, group % NIBBLES * 4);
                put_bits(small, SMALL_GROUPS / NIBBLES + group / NIBBLES, column, minimum, group % NIBBLES * 4);
            } else {
                small[group * LANES + column] = scale;
            }
        }
        cell[Self::SCALES + 2 * column..][..2].copy_from_slice(&superblock.scale.to_le_bytes());
        if Self::MINIMA {
            cell[Self::MINIMUM + 2 * column..][..2].copy_from_slice(&superblock.minimum.to_le_bytes());
        }
    }

    #[inline(always)]
    pub(super) fn group<L: Lanes>(self, group: usize) -> SmallGroup<L, BITS> {
        let (unit, first) = (group * SMALL_GROUP / Self::UNIT, group * SMALL_GROUP % Self::UNIT);
        // SAFETY: inside the supercell.
        let (words, scale) = unsafe {
            let small = self.0.add(Self::SMALL);
            let scale =
                if Self::MINIMA { nibble(small.cast(), group) } else { L::load_i8(small.add(group * LANES).cast()) };
            (self.0.add(unit * Self::UNIT_WORDS * WORD_BYTES).cast(), scale)
        };
        // Exact: at most 8 bits times 8.
        let offset = scale.mul(L::splat(-(BITS_BIAS + Self::ZERO as f32)));
        SmallGroup { words, first, scale, offset }
    }

    #[inline(always)]
    pub(super) fn small_minimum<L: Lanes>(self, group: usize) -> L {
        // SAFETY: inside the supercell; behind the small scales.
        unsafe { nibble(self.0.add(Self::SMALL + SMALL_BYTES / 2).cast(), group) }
    }

    #[inline(always)]
    pub(super) fn scale<L: Lanes>(self) -> L {
        // SAFETY: inside the supercell.
        unsafe { L::load_f16(self.0.add(Self::SCALES)) }
    }

    #[inline(always)]
    pub(super) fn minimum<L: Lanes>(self) -> L {
        // SAFETY: inside the supercell.
        unsafe { L::load_f16(self.0.add(Self::MINIMUM)) }
    }

    /// Asks for an eighth of the supercell that lies so far behind this one.
    #[inline(always)]
    pub(super) fn prefetch<L: Lanes>(self, bytes: usize, eighth: usize) {
        let lines = Self::BYTES / 64;
        for line in lines * eighth / 8..lines * (eighth + 1) / 8 {
            L::prefetch(self.0.wrapping_add(bytes + line * 64));
        }
    }
}

impl<L: Lanes, const BITS: usize> SmallGroup<L, BITS> {
    /// Of 16 columns, at the group's `k`-th k.
    #[inline(always)]
    pub(super) fn weights(&self, k: usize) -> L {
        // SAFETY: a code of the group.
        let code: L = unsafe { biased::<L, BITS>(self.words, self.first + k) };
        let weights = code.fma(self.scale, self.offset);
        // Two bits times four and three times six fit into a bf16.
        if BITS == 6 { weights.nearest_bf16() } else { weights }
    }
}

/// Code `i` behind `words`, plus the bias.
///
/// # Safety
/// All words of the code's unit are readable.
#[inline(always)]
unsafe fn biased<L: Lanes, const BITS: usize>(words: *const u32, i: usize) -> L {
    let in_word = Supercell::<BITS>::WORD_CODES;
    let whole = Supercell::<BITS>::UNIT_WORDS * in_word;
    // SAFETY: words of the unit.
    unsafe {
        if i < whole {
            return L::load_bits(words.add(i / in_word * LANES), i % in_word * BITS, BITS);
        }
        let (second, third) = (words.add(LANES), words.add(2 * LANES));
        // Parts of the code, each with a bias of its own.
        match (BITS, i - whole) {
            (6, _) => {
                let (low, middle, high) =
                    (L::load_bits(words, 30, 2), L::load_bits(second, 30, 2), L::load_bits(third, 30, 2));
                let biased = high.fma(L::splat(16.0), middle.fma(L::splat(4.0), low));
                biased.sub(L::splat((16.0 + 4.0) * BITS_BIAS))
            }
            (_, 0) => {
                let biased = L::load_bits(second, 30, 1).fma(L::splat(4.0), L::load_bits(words, 30, 2));
                biased.sub(L::splat(4.0 * BITS_BIAS))
            }
            _ => {
                let biased = L::load_bits(third, 30, 2).fma(L::splat(2.0), L::load_bits(second, 31, 1));
                biased.sub(L::splat(2.0 * BITS_BIAS))
            }
        }
    }
}

/// Four bits of each column.
///
/// # Safety
/// The groups' words are readable.
#[inline(always)]
unsafe fn nibble<L: Lanes>(words: *const u32, group: usize) -> L {
    // SAFETY: the caller's promise.
    let biased: L = unsafe { L::load_bits(words.add(group / NIBBLES * LANES), group % NIBBLES * 4, 4) };
    biased.sub(L::splat(BITS_BIAS))
}

/// Into the word of a column that is zero there so far.
fn put_bits(words: &mut [u8], word: usize, column: usize, bits: u8, first: usize) {
    let at = &mut words[word * WORD_BYTES + column * 4..][..4];
    for (byte, bits) in at.iter_mut().zip((u32::from(bits) << first).to_le_bytes()) {
        *byte |= bits;
    }
}
