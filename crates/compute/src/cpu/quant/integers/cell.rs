//! How codes lie in a cell for products of bytes: four k of a column side by side. The k of a block in the order in which rows
//! have them, even ones before odd ones, as place i in quad t = i / 4; columns c:
//!
//! ```text
//!   4 bits   byte 4c + i % 4 of 64 bytes t / 2: low half for even t, high half for odd
//!   5 bits   the low four as above, then a fifth bit t in byte 4c + i % 4 of 64 more bytes
//!   8 bits   byte 4c + i % 4 of 64 bytes t
//! ```
//!
//! All are unsigned. Scales and minima lie behind them, as in [other cells](super::super::cell).

#![allow(clippy::needless_range_loop, reason = "quads and bytes are numbers here; indexed loops become vectors")]

use baton_model::Dtype;

use super::super::format::{CodeWidth, Format, GROUP};
use super::super::group::Group;
use crate::cpu::lanes::{LANES, Lanes};

/// k that one product of bytes adds up.
pub(super) const QUAD: usize = 4;
pub(super) const QUADS: usize = GROUP / QUAD;
/// Of all columns.
pub(super) const QUAD_BYTES: usize = QUAD * LANES;

/// One of the formats with groups of 32, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct IntegerFormat(pub(super) Format);

/// A cell, one byte per code.
#[derive(Clone)]
#[repr(C, align(64))]
pub(crate) struct Block {
    pub(super) codes: [[u8; QUAD_BYTES]; QUADS],
    pub(super) scales: [f32; LANES],
    pub(super) minima: [f32; LANES],
}

impl Block {
    pub(super) const ZERO: Self = Self { codes: [[0; QUAD_BYTES]; QUADS], scales: [0.0; LANES], minima: [0.0; LANES] };
}

/// Where k is in its block.
pub(super) const fn place(k: usize) -> usize {
    k / 2 + k % 2 * (GROUP / 2)
}

impl IntegerFormat {
    pub(crate) fn of(dtype: Dtype) -> Option<Self> {
        Format::of(dtype).map(Self)
    }

    pub(crate) const fn cell_bytes(self) -> usize {
        self.0.cell_bytes()
    }

    pub(super) fn width(self) -> CodeWidth {
        self.0.width
    }

    /// Below 32.
    pub(super) fn has_small_codes(self) -> bool {
        self.0.width != CodeWidth::Eight
    }

    /// The code that stands for zero.
    pub(super) fn zero(self) -> u8 {
        if self.0.width == CodeWidth::Eight { 128 } else { self.0.zero }
    }

    /// Writes one column of a cell that is zero so far.
    pub(in crate::cpu::quant) fn put(self, cell: &mut [u8], column: usize, group: &Group) {
        for (k, &code) in group.codes.iter().enumerate() {
            let (quad, byte) = (place(k) / QUAD, column * QUAD + place(k) % QUAD);
            match self.0.width {
                CodeWidth::Four | CodeWidth::Five => {
                    cell[quad / 2 * QUAD_BYTES + byte] |= (code & 15) << (quad % 2 * 4);
                    if self.0.width == CodeWidth::Five {
                        cell[QUADS / 2 * QUAD_BYTES + byte] |= (code >> 4) << quad;
                    }
                }
                // From two's complement.
                CodeWidth::Eight => cell[quad * QUAD_BYTES + byte] = code ^ 0x80,
            }
        }
        self.0.put_scales(cell, column, group);
    }

    /// # Safety
    /// A whole cell is readable.
    #[inline(always)]
    pub(super) unsafe fn expand<L: Lanes>(self, cell: *const u8, to: &mut Block) {
        // SAFETY: the codes of a cell come first.
        let codes = unsafe { std::slice::from_raw_parts(cell, self.0.code_bytes()) };
        let (codes, _) = codes.as_chunks::<QUAD_BYTES>();
        match self.0.width {
            CodeWidth::Four | CodeWidth::Five => {
                for quad in (0..QUADS).step_by(2) {
                    for i in 0..QUAD_BYTES {
                        to.codes[quad][i] = codes[quad / 2][i] & 15;
                        to.codes[quad + 1][i] = codes[quad / 2][i] >> 4;
                    }
                }
                if self.0.width == CodeWidth::Five {
                    for quad in 0..QUADS {
                        for i in 0..QUAD_BYTES {
                            to.codes[quad][i] |= (codes[QUADS / 2][i] >> quad & 1) << 4;
                        }
                    }
                }
            }
            CodeWidth::Eight => {
                to.codes.copy_from_slice(codes);
            }
        }
        // SAFETY: the caller's promise; sixteen of each.
        unsafe {
            let (scales, minima) = self.scales::<L>(cell);
            scales.store(to.scales.as_mut_ptr());
            minima.store(to.minima.as_mut_ptr());
        }
    }

    /// And minima.
    ///
    /// # Safety
    /// A whole cell is readable.
    #[inline(always)]
    pub(super) unsafe fn scales<L: Lanes>(self, cell: *const u8) -> (L, L) {
        // SAFETY: behind the codes are the scales, and behind them the minima.
        unsafe {
            let at = cell.add(self.0.code_bytes());
            let scales = self.0.sixteen::<L>(at);
            let minima = if self.0.minima {
                self.0.sixteen::<L>(at.add(self.0.scale_bytes()))
            } else {
                // Exact: a power of two.
                scales.mul(L::splat(-f32::from(self.zero())))
            };
            (scales, minima)
        }
    }
}
