//! Weights that lie in memory as something smaller than bf16, read as tiles of it.

use half::bf16;

use crate::matmul::quant::CellReader;
use crate::simd::vector::Lanes;
use crate::weights::bf12;

/// Expands tiles of one panel or two, in the order in which they lie in memory.
#[derive(Clone)]
pub(crate) enum TileReader<'a> {
    Compact(bf12::Reader<'a>),
    Cells(CellReader<'a>),
}

impl TileReader<'_> {
    /// Somebody else asks for what it will read.
    pub(crate) fn without_asking(self) -> Self {
        match self {
            Self::Compact(reader) => Self::Compact(reader.without_asking()),
            Self::Cells(reader) => Self::Cells(reader.without_asking()),
        }
    }

    pub(crate) fn panels(&self) -> usize {
        match self {
            Self::Compact(reader) => reader.panels(),
            Self::Cells(reader) => reader.panels(),
        }
    }

    /// The next `blocks` of each panel, one behind the other, panels `panel_stride` apart.
    ///
    /// # Safety
    /// So many tiles are writable at `to`, and with a second panel as many at `to` + `panel_stride`.
    #[inline(always)]
    pub(crate) unsafe fn next<L: Lanes>(&mut self, blocks: usize, to: *mut bf16, panel_stride: usize) {
        // SAFETY: the caller's promise.
        unsafe {
            match self {
                Self::Compact(reader) => reader.next::<L>(blocks, to, panel_stride),
                Self::Cells(reader) => reader.next::<L>(blocks, to, panel_stride),
            }
        }
    }
}
