//! A matrix kept as cells: panels of 16 output columns, each panel with all its cells, of the type its rows have in the file.

use std::ops::Range;
use std::sync::Arc;

use baton_model::Dtype;

use super::floats::{CellReader, FloatFormat};
use super::format::GROUP;
use super::integers::IntegerFormat;
use crate::ComputeError;
use crate::cpu::chunks::Chunks;
use crate::cpu::lanes::LANES;
use crate::cpu::region::Region;
use crate::cpu::weights::Columns;

pub(crate) struct Cells {
    memory: Arc<Region>,
    panels: Vec<Place>,
    /// Of 32 k.
    blocks: usize,
    bytes: usize,
}

#[derive(Clone, Copy)]
struct Place {
    offset: usize,
    kept: Kept,
}

/// Which products codes are kept for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CodeProducts {
    /// [Of bf16](super::floats), in the order of tiles.
    Floats,
    /// [Of whole numbers](mod@super::integers): what logits always have.
    Integers,
}

/// How a panel is kept.
#[derive(Clone, Copy)]
pub(crate) enum Kept {
    Floats(FloatFormat),
    Integers(IntegerFormat),
}

impl Kept {
    fn of(dtype: Dtype, products: CodeProducts) -> Option<Self> {
        match products {
            CodeProducts::Floats => FloatFormat::of(dtype).map(Self::Floats),
            CodeProducts::Integers => IntegerFormat::of(dtype).map(Self::Integers),
        }
    }

    /// k of one cell.
    fn depth(self) -> usize {
        match self {
            Self::Floats(format) => format.depth(),
            Self::Integers(format) => format.depth(),
        }
    }

    fn cell_bytes(self) -> usize {
        match self {
            Self::Floats(format) => format.cell_bytes(),
            Self::Integers(format) => format.cell_bytes(),
        }
    }

    /// Begins a cache line, as long as all panels do.
    fn panel_bytes(self, depth: usize) -> usize {
        (depth / self.depth() * self.cell_bytes()).next_multiple_of(64)
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
            Place { offset: offset - kept.panel_bytes(depth), kept }
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

    /// The cells of a panel; `None` if they are kept for other products, here and below.
    pub(super) fn floats(&self, panel: usize) -> Option<(FloatFormat, *const u8)> {
        match self.panels[panel].kept {
            Kept::Floats(format) => Some((format, self.cells(panel))),
            Kept::Integers(_) => None,
        }
    }

    pub(super) fn integers(&self, panel: usize) -> Option<(IntegerFormat, *const u8)> {
        match self.panels[panel].kept {
            Kept::Integers(format) => Some((format, self.cells(panel))),
            Kept::Floats(_) => None,
        }
    }

    /// What all panels are kept for; `None` if there are none.
    pub(crate) fn products(&self) -> Option<CodeProducts> {
        self.panels.first().map(|place| match place.kept {
            Kept::Floats(_) => CodeProducts::Floats,
            Kept::Integers(_) => CodeProducts::Integers,
        })
    }

    /// Tiles of one panel or two, beginning with this block.
    pub(crate) fn reader(&self, panels: Range<usize>, block: usize) -> CellReader<'_> {
        assert!((1..=2).contains(&panels.len()) && block <= self.blocks);
        // Others would be skipped in silence.
        assert_eq!(self.products(), Some(CodeProducts::Floats));
        let second = if panels.len() == 2 { self.floats(panels.start + 1) } else { None };
        // SAFETY: panels of so many blocks.
        unsafe { CellReader::new([self.floats(panels.start), second], block..self.blocks) }
    }

    /// Where a block of codes for products of floats lies; behind the last panel, where that ends.
    pub(crate) fn place(&self, panel: usize, block: usize) -> *const u8 {
        match (self.panels.get(panel), self.panels.first()) {
            (Some(_), _) => self.cells(panel).wrapping_add(block * self.block_bytes(panel)),
            (None, first) => self.memory.as_ptr().wrapping_add(first.map_or(0, |first| first.offset) + self.bytes),
        }
    }

    /// What such a block takes, about.
    pub(crate) fn block_bytes(&self, panel: usize) -> usize {
        self.floats(panel).map_or(0, |(format, _)| format.block_bytes())
    }

    fn cells(&self, panel: usize) -> *const u8 {
        // SAFETY: inside the region.
        unsafe { self.memory.as_ptr().add(self.panels[panel].offset) }
    }

    /// Writes one panel; nobody reads it before all are written.
    pub(crate) fn pack(&self, panel: usize, columns: &Columns<'_>) {
        let kept = self.panels[panel].kept;
        let bytes = self.blocks * GROUP / kept.depth() * kept.cell_bytes();
        // SAFETY: this panel's bytes, which the caller alone uses now; the region is zeroed.
        let cells = unsafe { std::slice::from_raw_parts_mut(self.cells(panel).cast_mut(), bytes) };
        for lane in 0..LANES {
            let Some((tensor, row)) = columns.source(panel * LANES + lane) else { continue };
            let row = tensor.row(row);
            for (number, cell) in cells.chunks_mut(kept.cell_bytes()).enumerate() {
                match kept {
                    Kept::Floats(format) => format.put(cell, lane, tensor.dtype, row, number),
                    Kept::Integers(format) => format.put(cell, lane, tensor.dtype, row, number),
                }
            }
        }
    }
}

fn panel_format(columns: &Columns<'_>, lanes: Range<usize>, products: CodeProducts) -> Option<Kept> {
    let mut dtypes = lanes.filter_map(|column| columns.source(column)).map(|(tensor, _)| tensor.dtype);
    let first = dtypes.next()?;
    dtypes.all(|dtype| dtype == first).then(|| Kept::of(first, products)).flatten()
}
