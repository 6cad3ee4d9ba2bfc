//! Packed matrices: panels of 16 output columns, each panel with all its k in [`Element`] order.

use std::marker::PhantomData;
use std::sync::Arc;

use half::bf16;

use crate::memory::region::Region;
use crate::simd::vector::{LANES, Lanes, padded};
use crate::threads::team::{Member, Team};
use crate::weights::bf12::{self, Bf12, HighBytes};
use crate::weights::chunks::Chunks;
use crate::weights::columns::{Columns, Order, RowSlice};
use crate::weights::element::Element;
use crate::weights::format::{PanelKernel, Plain};
use crate::weights::layout::{BLOCK_DEPTH, FEW_ROWS, TILE};
use crate::weights::quant::QuantizedMatrix;
use baton_backend::BackendError;
use baton_model::TensorView;

/// The right-hand side of y = x · Wᵀ for a checkpoint's row-major W. Rows and k beyond W's are zero.
pub(crate) struct Matrix<E> {
    panels: usize,
    depth: usize,
    stored: Stored<E>,
}

/// In which form a matrix lies in memory.
enum Stored<E> {
    Plain(Elements<E>),
    /// The same elements in 12 bits.
    Bf12(Bf12),
    /// Blocks of the checkpoint's quantized types.
    Quantized(QuantizedMatrix),
}

struct Elements<E> {
    memory: Arc<Region>,
    first: usize,
    element: PhantomData<E>,
}

impl<E: Element> Matrix<E> {
    pub(crate) fn depth(&self) -> usize {
        self.depth
    }

    pub(crate) fn panels(&self) -> usize {
        self.panels
    }

    /// Columns of the output, padding included.
    pub(crate) fn width(&self) -> usize {
        self.panels * LANES
    }

    /// Of k, of which the last one may be filled up.
    pub(crate) fn blocks(&self) -> usize {
        self.depth.div_ceil(BLOCK_DEPTH)
    }

    pub(crate) fn quantized(&self) -> Option<&QuantizedMatrix> {
        match &self.stored {
            Stored::Quantized(quantized) => Some(quantized),
            _ => None,
        }
    }

    /// Whether its weights are quantized. A shard without columns has no weights at all.
    pub(crate) fn is_quantized(&self) -> bool {
        self.panels > 0 && self.quantized().is_some()
    }

    /// Whether its elements lie in memory as they are.
    pub(crate) fn is_plain(&self) -> bool {
        matches!(self.stored, Stored::Plain(_))
    }

    /// The address of a block of a panel, or of what follows the last panel.
    pub(crate) fn address(&self, panel: usize, block: usize) -> *const u8 {
        match &self.stored {
            Stored::Plain(_) => self.panel(panel).wrapping_add(block * TILE).cast(),
            Stored::Bf12(bf12) => bf12.address(panel, block),
            Stored::Quantized(quantized) => quantized.address(panel, block),
        }
    }

    /// Bytes of a block of a panel.
    pub(crate) fn block_bytes(&self, panel: usize) -> usize {
        match &self.stored {
            Stored::Plain(_) => TILE * size_of::<E>(),
            Stored::Bf12(_) => bf12::TILE_BYTES,
            Stored::Quantized(quantized) => quantized.block_bytes(panel),
        }
    }

    /// Bytes of memory, padding included.
    pub(crate) fn bytes(&self) -> usize {
        match &self.stored {
            Stored::Plain(_) => self.panels * self.panel_stride() * size_of::<E>(),
            Stored::Bf12(bf12) => bf12.bytes(),
            Stored::Quantized(quantized) => quantized.bytes(),
        }
    }

    pub(crate) fn panel_stride(&self) -> usize {
        panel_elements::<E>(self.depth)
    }

    /// All elements of `panel` are readable behind it, and those of the panels after it.
    pub(crate) fn panel(&self, panel: usize) -> *const E {
        assert!(panel <= self.panels);
        let Stored::Plain(elements) = &self.stored else { unreachable!("elements are stored in another form") };
        // SAFETY: inside the region, or one past this matrix.
        unsafe { elements.memory.as_ptr().cast::<E>().add(elements.first + panel * self.panel_stride()) }
    }

    /// Writes one panel.
    ///
    /// # Safety
    /// No other thread packs or reads this panel.
    unsafe fn pack(&self, panel: usize, columns: &Columns<'_>) {
        match &self.stored {
            Stored::Plain(_) => {
                let (first, elements) = (self.panel(panel).cast_mut(), self.panel_stride());
                // SAFETY: this panel, which no other thread uses; the region is zeroed.
                pack_panel(panel, columns, unsafe { std::slice::from_raw_parts_mut(first, elements) });
            }
            Stored::Bf12(bf12) => {
                let mut packed = vec![E::default(); self.panel_stride()];
                pack_panel(panel, columns, &mut packed);
                // SAFETY: the caller's promise.
                unsafe { bf12.pack(panel, E::as_bf16(&packed).unwrap_or_default()) };
            }
            // SAFETY: the caller's promise.
            Stored::Quantized(quantized) => unsafe { quantized.pack(panel, columns) },
        }
    }
}

/// Prefetch distance of weights that are not stored as they are multiplied.
const PREFETCH_BYTES: usize = 4 << 10;

impl Matrix<bf16> {
    /// How far ahead of a block prefetches go, in bytes: in the same panel, or, where it ends sooner, in the one that is read next
    /// when `side_by_side` panels are read together. `None` for plain elements, which have a distance of their own.
    #[inline(always)]
    pub(crate) fn prefetch_distance(&self, panel: usize, block: usize, side_by_side: usize) -> Option<usize> {
        if self.is_plain() {
            return None;
        }
        let bytes = self.block_bytes(panel);
        let is_near_end = block + PREFETCH_BYTES / bytes >= self.blocks();
        Some(PREFETCH_BYTES + if is_near_end { (side_by_side - 1) * self.blocks() * bytes } else { 0 })
    }

    /// The most rows that are multiplied with weights as these are read; with more, expanding them first takes less time. Without
    /// tiles quantized weights are never read so: integers are faster, and kernels for all formats take long to compile.
    #[inline(always)]
    pub(crate) fn most_rows_as_read<L: Lanes>(&self) -> usize {
        match &self.stored {
            Stored::Plain(_) if L::TILES => 0,
            _ if L::TILES => 2,
            Stored::Quantized(_) => 0,
            _ => FEW_ROWS,
        }
    }

    /// Runs a kernel with a panel, from this block on.
    #[inline(always)]
    pub(crate) fn run_panel<L: Lanes>(
        &self,
        panel: usize,
        block: usize,
        ahead: Option<usize>,
        kernel: impl PanelKernel,
    ) {
        match &self.stored {
            Stored::Quantized(quantized) => quantized.reader(panel, block, ahead).run::<L>(kernel),
            _ => self.run_float_panel::<L>(panel, block, ahead, kernel),
        }
    }

    /// The same for weights that are not quantized.
    #[inline(always)]
    pub(crate) fn run_float_panel<L: Lanes>(
        &self,
        panel: usize,
        block: usize,
        ahead: Option<usize>,
        kernel: impl PanelKernel,
    ) {
        match &self.stored {
            Stored::Plain(_) => kernel.run::<L, _>(Plain::weights(self.panel(panel).wrapping_add(block * TILE))),
            Stored::Bf12(bf12) => kernel.run::<L, _>(bf12.reader(panel, block, ahead)),
            Stored::Quantized(_) => unreachable!("weights are quantized"),
        }
    }
}

const fn panel_elements<E: Element>(depth: usize) -> usize {
    depth.next_multiple_of(E::DEPTH_STEP) * LANES
}

pub(super) const fn packed_elements<E: Element>(rows: usize, depth: usize) -> usize {
    padded(rows) / LANES * panel_elements::<E>(depth)
}

/// Memory for all matrices of a shard, filled front to back.
pub(super) struct Arena<E> {
    memory: Arc<Region>,
    capacity: usize,
    used: usize,
    /// For quantized matrices and those in 12 bits.
    chunks: Chunks,
    /// Whether bf16 is kept in 12 bits where few weights are exceptions.
    prefers_bf12: bool,
    element: PhantomData<E>,
}

impl<E: Element> Arena<E> {
    pub(super) fn new(elements: usize, prefers_bf12: bool) -> Result<Self, BackendError> {
        let memory = Arc::new(Region::new(elements * size_of::<E>())?);
        Ok(Self { memory, capacity: elements, used: 0, chunks: Chunks::default(), prefers_bf12, element: PhantomData })
    }

    /// Elements used so far, of those that will be, 0 to 1.
    pub(super) fn fraction(arenas: &[Self]) -> f32 {
        let (used, capacity) = arenas.iter().fold((0, 0), |sum, arena| (sum.0 + arena.used, sum.1 + arena.capacity));
        used as f32 / capacity as f32
    }

    fn matrix(&mut self, columns: &Columns<'_>, depth: usize, options: PackOptions) -> Result<Matrix<E>, BackendError> {
        let (panels, first_element) = (columns.width() / LANES, self.used);
        let may_be_quantized = E::EXPANDS && options.types == PanelTypes::Uniform;
        let formats = if may_be_quantized { QuantizedMatrix::formats(columns, depth) } else { None };
        let stored = if let Some(formats) = formats {
            Stored::Quantized(QuantizedMatrix::new(&mut self.chunks, &formats, depth)?)
        } else if self.prefers_bf12 && E::EXPANDS && suits_bf12::<E>(columns, depth) {
            Stored::Bf12(Bf12::new(&mut self.chunks, panels, panel_elements::<E>(depth) / TILE)?)
        } else {
            Stored::Plain(Elements { memory: Arc::clone(&self.memory), first: first_element, element: PhantomData })
        };
        let matrix = Matrix { panels, depth, stored };
        // Memory that is never touched costs nothing.
        self.used += panels * matrix.panel_stride();
        if self.used > self.capacity {
            return Err(BackendError::Load("weights are larger than their shapes".to_owned()));
        }
        Ok(matrix)
    }
}

/// Whether the columns of a panel are of one type.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum PanelTypes {
    /// Each panel has columns of a single type.
    Uniform,
    /// With some numbers of shards a panel has columns of two types, so the matrix is never kept quantized: what is computed would
    /// depend on the number of shards.
    Mixed,
}

/// How a matrix is made of tensors.
#[derive(Clone, Copy)]
pub(super) struct PackOptions {
    pub(super) order: Order,
    pub(super) types: PanelTypes,
}

/// A matrix for each shard, out of its own slices, in its own memory and written by its own members.
pub(super) fn pack<E: Element>(
    arenas: &mut [Arena<E>],
    options: PackOptions,
    depth: usize,
    shards: &[Vec<RowSlice<'_>>],
    team: &mut Team,
) -> Result<Vec<Matrix<E>>, BackendError> {
    let columns: Vec<_> = shards.iter().map(|slices| Columns { order: options.order, slices }).collect();
    let empty = arenas.iter_mut().zip(&columns);
    let matrices =
        empty.map(|(arena, columns)| arena.matrix(columns, depth, options)).collect::<Result<Vec<_>, _>>()?;
    team.run(&|member: &Member<'_>| {
        member.each_of_shards(
            |shard| matrices[shard].panels(),
            // SAFETY: each panel is one item, which one member takes; the matrices are read when all are done.
            |shard, panel| unsafe { matrices[shard].pack(panel, &columns[shard]) },
        )
    })?;
    Ok(matrices)
}

/// Whether few weights would be exceptions in 12 bits, judged by some panels.
fn suits_bf12<E: Element>(columns: &Columns<'_>, depth: usize) -> bool {
    const SAMPLES: usize = 4;
    /// At most one weight in this many is an exception.
    const EXCEPTIONS: usize = 256;
    let panels = columns.width() / LANES;
    let mut packed = vec![E::default(); panel_elements::<E>(depth)];
    let (mut seen, mut exceptions) = (0, 0);
    // Odd steps, so that of panels that alternate both kinds are seen.
    for panel in (0..panels).step_by(panels.div_ceil(SAMPLES) | 1) {
        packed.fill(E::default());
        pack_panel(panel, columns, &mut packed);
        let Some(weights) = E::as_bf16(&packed) else { return false };
        seen += weights.len();
        exceptions += HighBytes::of(weights).exceptions(weights);
    }
    exceptions * EXCEPTIONS <= seen
}

/// Into elements that are zero so far.
fn pack_panel<E: Element>(panel: usize, columns: &Columns<'_>, packed: &mut [E]) {
    for lane in 0..LANES {
        if let Some((tensor, row)) = columns.source(panel * LANES + lane) {
            pack_row(tensor, row, lane, packed);
        }
    }
}

fn pack_row<E: Element>(tensor: &TensorView<'_>, row: usize, lane: usize, packed: &mut [E]) {
    /// Whole blocks of every type.
    const CHUNK: usize = 256;
    let mut values = [0.0; CHUNK];
    let bytes = tensor.row(row);
    for (chunk, bytes) in bytes.chunks(tensor.dtype.bytes_of(CHUNK)).enumerate() {
        let values = &mut values[..bytes.len() / tensor.dtype.block_bytes() * tensor.dtype.block_values()];
        tensor.dtype.read(bytes, values);
        for (i, &value) in values.iter().enumerate() {
            packed[E::index(chunk * CHUNK + i, lane, LANES)] = E::from_f32(value);
        }
    }
}

#[cfg(test)]
impl Matrix<bf16> {
    /// Panels of the given bits, as a checkpoint of bf16 has them: row-major, `depth` k in each row.
    pub(crate) fn of_bits(panels: usize, depth: usize, prefers_bf12: bool, bits: impl Fn(usize) -> u16) -> Self {
        let shape = [panels * LANES, depth];
        let bytes: Vec<u8> = (0..shape[0] * depth).flat_map(|i| bits(i).to_le_bytes()).collect();
        let tensor = TensorView::new(baton_model::Dtype::Bf16, &shape, &bytes);
        let slices = [vec![RowSlice { tensor, rows: 0..shape[0] }]];
        let mut arenas = [Arena::new(packed_elements::<bf16>(shape[0], depth), prefers_bf12).unwrap()];
        let options = PackOptions { order: Order::Stacked, types: PanelTypes::Uniform };
        let mut matrices = pack(&mut arenas, options, depth, &slices, &mut Team::new(2).unwrap()).unwrap();
        matrices.remove(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use baton_model::{Dtype, RowOrder};

    const STACKED: PackOptions = PackOptions { order: Order::Stacked, types: PanelTypes::Uniform };

    #[test]
    fn packs_what_the_checkpoint_has() {
        let values: Vec<f32> = (0..36 * 5).map(|i| i as f32).collect();
        let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        let tensor = TensorView::new(Dtype::F32, &[36, 5], &bytes);
        let slices = [0..16, 16..36].map(|rows| vec![RowSlice { tensor, rows }]);
        let mut arenas = [16, 20].map(|rows| Arena::<bf16>::new(packed_elements::<bf16>(rows, 5), false).unwrap());
        let mut team = Team::with_shards(3, 2).unwrap();
        let matrices = pack(&mut arenas, STACKED, 5, &slices, &mut team).unwrap();
        for (shard, (matrix, rows)) in matrices.iter().zip([16, 20]).enumerate() {
            assert_eq!((matrix.panels(), matrix.depth(), matrix.width()), (shard + 1, 5, 16 * (shard + 1)));
            for (column, k) in (0..matrix.width()).flat_map(|column| (0..32).map(move |k| (column, k))) {
                let index = bf16::index(k, column % LANES, LANES);
                // SAFETY: inside the panel.
                let got = unsafe { *matrix.panel(column / LANES).add(index) };
                let expected = if column < rows && k < 5 { values[(shard * 16 + column) * 5 + k] } else { 0.0 };
                assert_eq!(got.to_f32(), expected, "shard {shard} ({k}, {column})");
            }
        }
    }

    #[test]
    fn weights_with_few_exceptions_take_12_bits() {
        let bits = |unusual: bool| {
            move |i: usize| {
                let bits = (i as u32).wrapping_mul(0x9e37_79b9) >> 16;
                let exponent = if unusual { bits >> 8 } else { 118 + (bits >> 8) % 9 };
                (exponent as u16) << 7 | bits as u16 & 0x807f
            }
        };
        for unusual in [false, true] {
            let (rows, depth) = (40, 70);
            let weights: Vec<u16> = (0..rows * depth).map(bits(unusual)).collect();
            let bytes: Vec<u8> = weights.iter().flat_map(|bits| bits.to_le_bytes()).collect();
            let shape = [rows, depth];
            let tensor = TensorView::new(Dtype::Bf16, &shape, &bytes);
            let slices = [vec![RowSlice { tensor, rows: 0..rows }]];
            let mut arenas = [Arena::<bf16>::new(packed_elements::<bf16>(rows, depth), true).unwrap()];
            let mut team = Team::with_shards(2, 1).unwrap();
            let matrices = pack(&mut arenas, STACKED, depth, &slices, &mut team).unwrap();
            assert_eq!(matrices[0].is_plain(), unusual);
            let plain = packed_elements::<bf16>(rows, depth) * size_of::<bf16>();
            assert_eq!(matrices[0].bytes(), if unusual { plain } else { plain * 3 / 4 });
        }
    }

    #[test]
    fn blocks_stay_as_small_as_in_the_file() {
        let (rows, depth) = (48, 1024);
        let blocks = Dtype::ALL.into_iter().filter(|dtype| dtype.block_values() > 1);
        for dtype in blocks {
            let bytes = vec![0; dtype.bytes_of(rows * depth)];
            let shape = [rows, depth];
            let tensor = TensorView::new(dtype, &shape, &bytes);
            let slices = [vec![RowSlice { tensor, rows: 0..rows }]];
            let mut arenas = [Arena::<bf16>::new(packed_elements::<bf16>(rows, depth), false).unwrap()];
            let mut team = Team::with_shards(1, 1).unwrap();
            let matrices = pack(&mut arenas, STACKED, depth, &slices, &mut team).unwrap();
            let kept = matrices[0].bytes();
            // Products of scales are kept as f32: 64 bits for each 32 weights.
            let most = bytes.len()
                + if matches!(dtype, Dtype::Q4K | Dtype::Q5K) { rows * depth / 4 } else { bytes.len() / 16 };
            assert!(kept <= most, "{dtype}: {kept} bytes, {} in the file", bytes.len());
        }
    }

    #[test]
    fn packs_blocks_as_what_they_stand_for() {
        // 64 rows of one block each, the scale in its first two bytes.
        let block = |row: usize| -> [u8; 34] {
            let scale = bf16::from_f32(row as f32).to_f32();
            std::array::from_fn(|i| match i {
                0 | 1 => half::f16::from_f32(scale / 64.0).to_le_bytes()[i],
                i => (i * 7 + row) as u8,
            })
        };
        let bytes: Vec<u8> = (0..64).flat_map(block).collect();
        let rows = RowOrder::PairsTogether { head_dim: 32 };
        let tensor = TensorView { rows, ..TensorView::new(Dtype::Q8_0, &[64, 32], &bytes) };
        let mut arenas = [Arena::<f32>::new(packed_elements::<f32>(64, 32), false).unwrap()];
        let slices = [vec![RowSlice { tensor, rows: 0..64 }]];
        let mut team = Team::with_shards(2, 1).unwrap();
        let matrices = pack(&mut arenas, STACKED, 32, &slices, &mut team).unwrap();
        let mut expected = [0.0; 32];
        for row in 0..64 {
            Dtype::Q8_0.read(&block(rows.in_file(row)), &mut expected);
            for (k, expected) in expected.iter().enumerate() {
                // SAFETY: inside the panel.
                let got = unsafe { *matrices[0].panel(row / LANES).add(f32::index(k, row % LANES, LANES)) };
                assert_eq!(got, *expected, "({k}, {row})");
            }
        }
    }
}
