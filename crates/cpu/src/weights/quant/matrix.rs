//! A quantized matrix: panels of 16 output columns, each panel with all its blocks, of the type its rows have in the file.

use std::ops::Range;
use std::sync::Arc;

use super::floats::AnyPanel;
use super::format::QuantFormat;
use crate::memory::region::Region;
use crate::simd::vector::LANES;
use crate::weights::Columns;
use crate::weights::chunks::Chunks;
use crate::weights::layout::GROUP;
use baton_backend::BackendError;

pub(crate) struct QuantizedMatrix {
    memory: Arc<Region>,
    panels: Vec<PanelData>,
    /// Blocks of 32 k in each panel.
    blocks: usize,
    bytes: usize,
}

#[derive(Clone, Copy)]
struct PanelData {
    offset: usize,
    format: QuantFormat,
}

/// Bytes of a panel: whole cache lines.
fn panel_bytes(format: QuantFormat, depth: usize) -> usize {
    (depth / format.depth() * format.bytes()).next_multiple_of(64)
}

impl QuantizedMatrix {
    /// The format of each panel of these columns. `None` if one has none: it is not of a quantized type, or of two types.
    pub(crate) fn formats(columns: &Columns<'_>, depth: usize) -> Option<Vec<QuantFormat>> {
        let panels = 0..columns.width() / LANES;
        let format = |panel: usize| panel_format(columns, panel * LANES..(panel + 1) * LANES);
        panels.map(|panel| format(panel).filter(|format| depth.is_multiple_of(format.depth()))).collect()
    }

    pub(crate) fn new(chunks: &mut Chunks, panels: &[QuantFormat], depth: usize) -> Result<Self, BackendError> {
        let bytes = panels.iter().map(|&format| panel_bytes(format, depth)).sum();
        let (memory, mut offset) = chunks.take(bytes)?;
        let panels = panels.iter().map(|&format| {
            offset += panel_bytes(format, depth);
            PanelData { offset: offset - panel_bytes(format, depth), format }
        });
        Ok(Self { panels: panels.collect(), memory, blocks: depth / GROUP, bytes })
    }

    /// Bytes of memory.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Blocks of 32 k in each panel.
    pub(crate) fn blocks(&self) -> usize {
        self.blocks
    }

    /// A panel's format, and where its data begin.
    pub(crate) fn panel(&self, panel: usize) -> (QuantFormat, *const u8) {
        (self.panels[panel].format, self.data(panel))
    }

    /// Reads a panel as bf16 from this block on, with a prefetch distance in bytes.
    #[inline(always)]
    pub(crate) fn reader(&self, panel: usize, block: usize, ahead: Option<usize>) -> AnyPanel {
        assert!(block <= self.blocks);
        let (format, data) = self.panel(panel);
        AnyPanel { format, data, block, ahead }
    }

    /// The address of a block of a panel, or of what follows the last panel.
    pub(crate) fn address(&self, panel: usize, block: usize) -> *const u8 {
        match (self.panels.get(panel), self.panels.first()) {
            (Some(_), _) => self.data(panel).wrapping_add(block * self.block_bytes(panel)),
            (None, first) => self.memory.as_ptr().wrapping_add(first.map_or(0, |first| first.offset) + self.bytes),
        }
    }

    /// Bytes of a block of a panel; of one in a superblock, an eighth of it.
    pub(crate) fn block_bytes(&self, panel: usize) -> usize {
        self.panels[panel].format.block_bytes()
    }

    fn data(&self, panel: usize) -> *const u8 {
        // SAFETY: inside the region.
        unsafe { self.memory.as_ptr().add(self.panels[panel].offset) }
    }

    /// Writes one panel.
    ///
    /// # Safety
    /// No other thread packs or reads this panel.
    pub(crate) unsafe fn pack(&self, panel: usize, columns: &Columns<'_>) {
        let format = self.panels[panel].format;
        let bytes = self.blocks * GROUP / format.depth() * format.bytes();
        // SAFETY: this panel's bytes, which no other thread uses; the region is zeroed.
        let data = unsafe { std::slice::from_raw_parts_mut(self.data(panel).cast_mut(), bytes) };
        for lane in 0..LANES {
            let Some((tensor, row)) = columns.source(panel * LANES + lane) else { continue };
            let row = tensor.row(row);
            for (number, packed) in data.chunks_mut(format.bytes()).enumerate() {
                format.pack_column(packed, lane, tensor.dtype, row, number);
            }
        }
    }
}

fn panel_format(columns: &Columns<'_>, lanes: Range<usize>) -> Option<QuantFormat> {
    let mut dtypes = lanes.filter_map(|column| columns.source(column)).map(|(tensor, _)| tensor.dtype);
    let first = dtypes.next()?;
    dtypes.all(|dtype| dtype == first).then(|| QuantFormat::of(first)).flatten()
}
