//! Weights that are stored as something other than bf16, read as tiles of it.

use std::ops::Range;

use half::bf16;

use crate::simd::vector::{Kernel, Lanes};
use crate::weights::Matrix;
use crate::weights::format::{PanelKernel, WeightFormat};

/// Expands tiles of one panel or two, in the order in which they lie in memory.
#[derive(Clone)]
pub(crate) struct TileReader<'a> {
    matrix: &'a Matrix<bf16>,
    panels: Range<usize>,
    /// The next one.
    block: usize,
    prefetches: bool,
}

impl<'a> TileReader<'a> {
    /// From this block on; `None` where tiles lie in memory.
    pub(crate) fn new(matrix: &'a Matrix<bf16>, panels: Range<usize>, block: usize) -> Option<Self> {
        (!matrix.is_plain()).then_some(Self { matrix, panels, block, prefetches: true })
    }

    /// For tiles that are prefetched elsewhere.
    pub(crate) fn without_prefetch(self) -> Self {
        Self { prefetches: false, ..self }
    }

    /// The next `blocks` of each panel, one behind the other, panels `panel_stride` apart.
    ///
    /// # Safety
    /// `blocks` tiles are writable at `to`, and with a second panel as many at `to` + `panel_stride`.
    #[inline(always)]
    pub(crate) unsafe fn next<L: Lanes>(&mut self, blocks: usize, to: *mut bf16, panel_stride: usize) {
        let first = self.block;
        self.block += blocks;
        assert!(self.block <= self.matrix.blocks());
        for (place, panel) in self.panels.clone().enumerate() {
            let ahead = self.matrix.prefetch_distance(panel, first, self.panels.len()).filter(|_| self.prefetches);
            let tiles = Tiles { blocks, to: to.wrapping_add(place * panel_stride) };
            L::call(OfPanel { matrix: self.matrix, panel, first, ahead, tiles });
        }
    }
}

struct OfPanel<'a> {
    matrix: &'a Matrix<bf16>,
    panel: usize,
    first: usize,
    ahead: Option<usize>,
    tiles: Tiles,
}

impl Kernel for OfPanel<'_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self) {
        self.matrix.run_panel::<L>(self.panel, self.first, self.ahead, self.tiles);
    }
}

/// Tiles to expand. The panel has as many left, and they are writable: [`TileReader::next`] requires it.
struct Tiles {
    blocks: usize,
    to: *mut bf16,
}

impl PanelKernel for Tiles {
    #[inline(always)]
    fn run<L: Lanes, F: WeightFormat>(self, mut panel: F) {
        // SAFETY: as above.
        unsafe { panel.expand::<L>(self.blocks, self.to) };
    }
}
