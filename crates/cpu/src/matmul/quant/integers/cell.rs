//! Cells as products of bytes read them.

#![allow(clippy::needless_range_loop, reason = "quads and bytes are numbers here; indexed loops become vectors")]

use super::super::codes::{QUAD_BYTES, QUADS};
use super::super::format::{CodeWidth, Format};
use super::block::Block;
use crate::simd::vector::Lanes;

impl Format {
    /// # Safety
    /// A whole cell is readable.
    #[inline(always)]
    pub(super) unsafe fn expand<L: Lanes>(self, cell: *const u8, to: &mut Block) {
        // SAFETY: the codes of a cell come first.
        let codes = unsafe { std::slice::from_raw_parts(cell, self.code_bytes()) };
        let (codes, _) = codes.as_chunks::<QUAD_BYTES>();
        match self.width {
            CodeWidth::Four | CodeWidth::Five => {
                for quad in (0..QUADS).step_by(2) {
                    for i in 0..QUAD_BYTES {
                        to.codes[quad][i] = codes[quad / 2][i] & 15;
                        to.codes[quad + 1][i] = codes[quad / 2][i] >> 4;
                    }
                }
                if self.width == CodeWidth::Five {
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
        // SAFETY: they lie behind the codes; sixteen of each.
        unsafe {
            let (scales, minima) = self.scales::<L>(cell.add(self.code_bytes()));
            scales.store(to.scales[0].as_mut_ptr());
            minima.store(to.minima[0].as_mut_ptr());
        }
    }
}
