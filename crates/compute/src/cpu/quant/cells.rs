//! A matrix kept as cells: panels of 16 output columns, each panel with all its cells, of the type its rows have in the file.

use std::ops::Range;
use std::sync::Arc;

use baton_model::Dtype;
use half::bf16;

use super::cell::Tile;
use super::expand::expand;
use super::format::{Format, GROUP};
use super::group::Group;
use super::integers::IntegerFormat;
use super::superblock::{SUPER_DEPTH, Superblock, Superblocks};
use crate::ComputeError;
use crate::cpu::chunks::Chunks;
use crate::cpu::lanes::{LANES, Lanes};
use crate::cpu::region::Region;
use crate::cpu::weights::Columns;

pub(crate) struct Cells {
    memory: Arc<Region>,
    panels: Vec<Place>,
    /// Of 32 k.
    blocks: usize,
    bytes: usize,
}

/// So far ahead cells are asked for.
const PREFETCH_BYTES: usize = 8 << 10;

#[derive(Clone, Copy)]
struct Place {
    offset: usize,
    kept: Kept,
    /// Of groups of 32.
    table: [bf16; 32],
}

/// Which products codes are kept for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CodeProducts {
    /// Of bf16, in the order of tiles.
    Pairs,
    /// Of [whole numbers](super::integers).
    Integers,
}

/// How a panel is kept.
#[derive(Clone, Copy)]
pub(crate) enum Kept {
    /// One cell for each 32 k.
    Groups(Format),
    /// Either, for products of whole numbers.
    Integers(IntegerFormat),
    /// One supercell for each 256 k.
    Superblocks(Superblocks),
}

impl Kept {
    pub(super) fn of(dtype: Dtype, products: CodeProducts) -> Option<Self> {
        match products {
            CodeProducts::Pairs => {
                let groups = Format::of(dtype).map(Self::Groups);
                groups.or_else(|| Superblocks::of(dtype).map(Self::Superblocks))
            }
            CodeProducts::Integers => IntegerFormat::of(dtype).map(Self::Integers),
        }
    }

    /// k of one cell.
    fn depth(self) -> usize {
        match self {
            Self::Groups(_) => GROUP,
            Self::Integers(format) => format.depth(),
            Self::Superblocks(_) => SUPER_DEPTH,
        }
    }

    fn cell_bytes(self) -> usize {
        match self {
            Self::Groups(format) => format.cell_bytes(),
            Self::Integers(format) => format.cell_bytes(),
            Self::Superblocks(superblocks) => superblocks.cell_bytes(),
        }
    }

    /// Begins a cache line, as long as all panels do.
    fn panel_bytes(self, depth: usize) -> usize {
        (depth / self.depth() * self.cell_bytes()).next_multiple_of(64)
    }

    fn table(self) -> [bf16; 32] {
        match self {
            Self::Groups(format) => format.table(),
            Self::Integers(_) | Self::Superblocks(_) => [bf16::ZERO; 32],
        }
    }
}

impl Cells {
    /// How each panel of these columns would be kept. `None` if one cannot: a type without cells, or two types in a panel.
    pub(crate) fn formats(columns: &Columns<'_>, depth: usize, products: CodeProducts) -> Option<Vec<Kept>> {
        let panels = 0..columns.width() / LANES;
        let kept = |panel: usize| panel_format(columns, panel * LANES..(panel + 1) * LANES, products);
        panels.map(|panel| kept(panel).filter(|kept| depth.is_multiple_of(kept.depth()))).collect()
    }

    pub(crate) fn new(chunks: &mut Chunks, panels: &[Kept], depth: usize) -> Result<Self, ComputeError> {
        let bytes = panels.iter().map(|kept| kept.panel_bytes(depth)).sum();
        let (memory, mut offset) = chunks.take(bytes)?;
        let panels = panels.iter().map(|&kept| {
            offset += kept.panel_bytes(depth);
            Place { offset: offset - kept.panel_bytes(depth), kept, table: kept.table() }
        });
        Ok(Self { panels: panels.collect(), memory, blocks: depth / GROUP, bytes })
    }

    /// Of memory.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Of 32 k, in each panel.
    pub(super) fn blocks(&self) -> usize {
        self.blocks
    }

    pub(super) fn has_minima(&self, panels: Range<usize>) -> bool {
        panels.into_iter().any(|panel| self.format(panel).is_some_and(|format| format.minima))
    }

    /// `None` for panels that are kept otherwise, here and below.
    pub(super) fn format(&self, panel: usize) -> Option<Format> {
        match self.panels[panel].kept {
            Kept::Groups(format) => Some(format),
            _ => None,
        }
    }

    pub(super) fn integers(&self, panel: usize) -> Option<IntegerFormat> {
        match self.panels[panel].kept {
            Kept::Integers(format) => Some(format),
            _ => None,
        }
    }

    /// Whether products of some panel are of whole numbers.
    pub(crate) fn has_integers(&self) -> bool {
        self.panels.iter().any(|place| matches!(place.kept, Kept::Integers(_)))
    }

    pub(super) fn superblocks(&self, panel: usize) -> Option<Superblocks> {
        match self.panels[panel].kept {
            Kept::Superblocks(superblocks) => Some(superblocks),
            _ => None,
        }
    }

    pub(super) fn table(&self, panel: usize) -> &[bf16; 32] {
        &self.panels[panel].table
    }

    /// All cells from this one on to the end of the panel are readable behind it.
    pub(super) fn cell(&self, panel: usize, number: usize) -> *const u8 {
        let &Place { offset, kept, .. } = &self.panels[panel];
        assert!(number * kept.depth() <= self.blocks * GROUP);
        // SAFETY: inside the region, or one past the panel.
        unsafe { self.memory.as_ptr().add(offset + number * kept.cell_bytes()) }
    }

    /// Where the cell of a block lies, to be asked for. Behind the last panel is what was packed next, as a rule.
    pub(super) fn near(&self, panel: usize, block: usize) -> *const u8 {
        let last = |place: &Place| place.offset + place.kept.panel_bytes(self.blocks * GROUP);
        let offset = match self.panels.get(panel) {
            Some(Place { offset, kept, .. }) => offset + block * GROUP / kept.depth() * kept.cell_bytes(),
            None => self.panels.last().map_or(0, last),
        };
        self.memory.as_ptr().wrapping_add(offset)
    }

    /// Writes one panel; nobody reads it before all are written.
    pub(crate) fn pack(&self, panel: usize, columns: &Columns<'_>) {
        let kept = self.panels[panel].kept;
        let bytes = self.blocks * GROUP / kept.depth() * kept.cell_bytes();
        // SAFETY: this panel's bytes, which the caller alone uses now; the region is zeroed.
        let cells = unsafe { std::slice::from_raw_parts_mut(self.cell(panel, 0).cast_mut(), bytes) };
        for lane in 0..LANES {
            let Some((tensor, row)) = columns.source(panel * LANES + lane) else { continue };
            let row = tensor.row(row);
            for (number, cell) in cells.chunks_mut(kept.cell_bytes()).enumerate() {
                match kept {
                    Kept::Groups(format) => {
                        if let Some(group) = Group::read(tensor.dtype, row, number) {
                            format.put(cell, lane, &group);
                        }
                    }
                    Kept::Integers(IntegerFormat::Groups(groups)) => {
                        if let Some(group) = Group::read(tensor.dtype, row, number) {
                            groups.put(cell, lane, &group);
                        }
                    }
                    Kept::Integers(IntegerFormat::Superblocks(superblocks)) => {
                        if let Some(superblock) = Superblock::read(tensor.dtype, row, number) {
                            superblocks.put(cell, lane, &superblock);
                        }
                    }
                    Kept::Superblocks(superblocks) => {
                        if let Some(superblock) = Superblock::read(tensor.dtype, row, number) {
                            superblocks.put(cell, lane, &superblock);
                        }
                    }
                }
            }
        }
    }

    /// `tiles` = the codes of some blocks of groups, one tile after the other.
    #[inline(always)]
    pub(super) fn expand<L: Lanes>(&self, panel: usize, blocks: Range<usize>, tiles: &mut [Tile]) {
        let Some(format) = self.format(panel) else { return };
        let table = self.table(panel);
        for (block, tile) in blocks.zip(tiles) {
            let cell = self.cell(panel, block);
            // Scales too, which nobody reads before the tile is needed. With tiles products ask for them.
            if !L::TILES {
                for line in (0..format.cell_bytes()).step_by(64) {
                    L::prefetch(cell.wrapping_add(PREFETCH_BYTES + line));
                }
            }
            // SAFETY: an existing cell.
            unsafe { expand::<L>(format, table, cell, tile) };
        }
    }
}

fn panel_format(columns: &Columns<'_>, lanes: Range<usize>, products: CodeProducts) -> Option<Kept> {
    let mut dtypes = lanes.filter_map(|column| columns.source(column)).map(|(tensor, _)| tensor.dtype);
    let first = dtypes.next()?;
    dtypes.all(|dtype| dtype == first).then(|| Kept::of(first, products)).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_block_of_any_panel_can_be_asked_for() {
        let panels = [Dtype::Q4_1, Dtype::Q6K, Dtype::Q8_0].map(|dtype| Kept::of(dtype, CodeProducts::Pairs).unwrap());
        let depth = 6 * SUPER_DEPTH;
        let cells = Cells::new(&mut Chunks::default(), &panels, depth).unwrap();
        for (panel, kept) in panels.iter().enumerate() {
            for block in 0..depth / GROUP {
                let cell = block * GROUP / kept.depth();
                assert_eq!(cells.near(panel, block), cells.cell(panel, cell), "panel {panel}, block {block}");
            }
        }
        assert_eq!(cells.near(panels.len(), 0), cells.cell(2, depth / GROUP));
    }
}
