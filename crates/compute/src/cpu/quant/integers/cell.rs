//! How codes lie in a cell for products of bytes. Of place i in quad t = i / 4 (see [`Block`]) and column c:
//!
//! ```text
//!   4 bits   byte 4c + i % 4 of 64 bytes t / 2: low half for even t, high half for odd
//!   5 bits   the low four as above, then a fifth bit t in byte 4c + i % 4 of 64 more bytes
//!   8 bits   byte 4c + i % 4 of 64 bytes t
//! ```
//!
//! All are unsigned. Scales and minima lie behind them, as in [other cells](super::super::floats).

#![allow(clippy::needless_range_loop, reason = "quads and bytes are numbers here; indexed loops become vectors")]

use super::super::format::{CodeWidth, Format};
use super::super::group::Group;
use super::block::{Block, QUAD, QUAD_BYTES, QUADS, place};
use crate::cpu::lanes::Lanes;

/// One of the formats with groups of 32, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct IntegerGroups(pub(super) Format);

impl IntegerGroups {
    pub(crate) const fn cell_bytes(self) -> usize {
        self.0.cell_bytes()
    }

    #[cfg(target_arch = "x86_64")]
    pub(super) fn width(self) -> CodeWidth {
        self.0.width
    }

    /// The code that stands for zero.
    pub(super) fn zero(self) -> u8 {
        if self.0.width == CodeWidth::Eight { 128 } else { self.0.zero }
    }

    /// Writes one column of a cell that is zero so far.
    pub(super) fn put(self, cell: &mut [u8], column: usize, group: &Group) {
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
            scales.store(to.scales[0].as_mut_ptr());
            minima.store(to.minima[0].as_mut_ptr());
        }
    }

    /// And minima.
    ///
    /// # Safety
    /// A whole cell is readable.
    #[inline(always)]
    pub(super) unsafe fn scales<L: Lanes>(self, cell: *const u8) -> (L, L) {
        // SAFETY: they lie behind the codes.
        unsafe { self.0.scales(cell.add(self.0.code_bytes()), self.zero()) }
    }
}
