//! Packed matrices: panels of 16 output columns, each panel with all its k in [`Element`] order.

use std::marker::PhantomData;
use std::sync::Arc;

use baton_model::TensorView;

use super::source::read_values;
use crate::ComputeError;
use crate::cpu::element::{Element, pair_stride};
use crate::cpu::lanes::{LANES, padded};
use crate::cpu::region::Region;
use crate::cpu::team::{Member, Team};

/// The right-hand side of y = x · Wᵀ for a checkpoint's row-major W. Rows and k beyond W's are zero.
pub(crate) struct Matrix<E> {
    memory: Arc<Region>,
    first_element: usize,
    panels: usize,
    depth: usize,
    element: PhantomData<E>,
}

impl<E: Element> Matrix<E> {
    pub(crate) const PAIR_STRIDE: usize = pair_stride(LANES);

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

    pub(crate) fn panel_stride(&self) -> usize {
        panel_elements(self.depth)
    }

    /// All elements of `panel` are readable behind it, and those of the panels after it.
    pub(crate) fn panel(&self, panel: usize) -> *const E {
        assert!(panel <= self.panels);
        // SAFETY: inside the region, or one past this matrix.
        unsafe { self.memory.as_ptr().cast::<E>().add(self.first_element + panel * self.panel_stride()) }
    }
}

const fn panel_elements(depth: usize) -> usize {
    depth.next_multiple_of(2) * LANES
}

pub(super) const fn packed_elements(rows: usize, depth: usize) -> usize {
    padded(rows) / LANES * panel_elements(depth)
}

/// How the rows of several tensors become one matrix's columns.
#[derive(Clone, Copy)]
pub(super) enum Order {
    /// One tensor after the other.
    Stacked,
    /// 16 rows of the first, 16 of the second, and so on; tensors of equal size.
    AlternatingPanels,
}

impl Order {
    fn width(self, tensors: &[TensorView<'_>]) -> usize {
        match self {
            Self::Stacked => padded(tensors.iter().map(|tensor| tensor.shape[0]).sum()),
            Self::AlternatingPanels => tensors.iter().map(|tensor| padded(tensor.shape[0])).sum(),
        }
    }

    /// The column of a tensor's row.
    pub(super) fn column(self, tensor: usize, row: usize, tensors: &[TensorView<'_>]) -> usize {
        match self {
            Self::Stacked => row + tensors[..tensor].iter().map(|tensor| tensor.shape[0]).sum::<usize>(),
            Self::AlternatingPanels => (row / LANES * tensors.len() + tensor) * LANES + row % LANES,
        }
    }

    /// The (tensor, row) of a column; `None` for padding.
    fn source(self, column: usize, tensors: &[TensorView<'_>]) -> Option<(usize, usize)> {
        match self {
            Self::Stacked => {
                let mut row = column;
                for (which, tensor) in tensors.iter().enumerate() {
                    if row < tensor.shape[0] {
                        return Some((which, row));
                    }
                    row -= tensor.shape[0];
                }
                None
            }
            Self::AlternatingPanels => {
                let (panel, lane) = (column / LANES, column % LANES);
                let (which, row) = (panel % tensors.len(), panel / tensors.len() * LANES + lane);
                (row < tensors[which].shape[0]).then_some((which, row))
            }
        }
    }
}

/// Memory for all matrices of a model, filled front to back.
pub(super) struct Arena<E> {
    memory: Arc<Region>,
    capacity: usize,
    used: usize,
    element: PhantomData<E>,
}

impl<E: Element> Arena<E> {
    pub(super) fn new(elements: usize) -> Result<Self, ComputeError> {
        let memory = Arc::new(Region::new(elements * size_of::<E>())?);
        Ok(Self { memory, capacity: elements, used: 0, element: PhantomData })
    }

    pub(super) fn fraction(&self) -> f32 {
        self.used as f32 / self.capacity as f32
    }

    pub(super) fn pack(
        &mut self,
        order: Order,
        depth: usize,
        tensors: &[TensorView<'_>],
        team: &mut Team,
    ) -> Result<Matrix<E>, ComputeError> {
        let panels = order.width(tensors) / LANES;
        let matrix = Matrix::<E> {
            memory: Arc::clone(&self.memory),
            first_element: self.used,
            panels,
            depth,
            element: PhantomData,
        };
        self.used += panels * matrix.panel_stride();
        if self.used > self.capacity {
            return Err(ComputeError::Load("weights are larger than their shapes say".to_owned()));
        }
        team.run(&|member: &Member<'_>| {
            member.each(panels, |panel| {
                // SAFETY: this item's panel, which nobody reads before the matrix is done; the region is zeroed.
                let packed =
                    unsafe { std::slice::from_raw_parts_mut(matrix.panel(panel).cast_mut(), matrix.panel_stride()) };
                for lane in 0..LANES {
                    if let Some((which, row)) = order.source(panel * LANES + lane, tensors) {
                        pack_row(&tensors[which], row, depth, lane, packed);
                    }
                }
            })
        })?;
        Ok(matrix)
    }
}

fn pack_row<E: Element>(tensor: &TensorView<'_>, row: usize, depth: usize, lane: usize, packed: &mut [E]) {
    const CHUNK: usize = 256;
    let size = tensor.dtype.bytes();
    let bytes = &tensor.bytes[row * depth * size..(row + 1) * depth * size];
    let mut values = [0.0; CHUNK];
    for (chunk, bytes) in bytes.chunks(CHUNK * size).enumerate() {
        let values = &mut values[..bytes.len() / size];
        read_values(tensor.dtype, bytes, values);
        for (i, &value) in values.iter().enumerate() {
            packed[E::index(chunk * CHUNK + i, lane, LANES)] = E::from_f32(value);
        }
    }
}

#[cfg(test)]
mod tests {
    use baton_model::Dtype;
    use half::bf16;

    use super::*;

    #[test]
    fn columns_and_sources_are_inverse() {
        let shapes = [[40, 3], [24, 3]];
        let tensors = shapes.each_ref().map(|shape| TensorView { dtype: Dtype::F32, shape, bytes: &[] });
        let same = [tensors[0], tensors[0]];
        for (order, tensors) in [(Order::Stacked, &tensors), (Order::AlternatingPanels, &same)] {
            let mut padding = order.width(tensors);
            for (which, tensor) in tensors.iter().enumerate() {
                for row in 0..tensor.shape[0] {
                    assert_eq!(order.source(order.column(which, row, tensors), tensors), Some((which, row)));
                    padding -= 1;
                }
            }
            let empty = (0..order.width(tensors)).filter(|&column| order.source(column, tensors).is_none());
            assert_eq!(empty.count(), padding);
        }
    }

    #[test]
    fn packs_what_the_checkpoint_has() {
        let values: Vec<f32> = (0..20 * 5).map(|i| i as f32).collect();
        let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        let tensor = TensorView { dtype: Dtype::F32, shape: &[20, 5], bytes: &bytes };
        let mut arena = Arena::<bf16>::new(packed_elements(20, 5)).unwrap();
        let matrix = arena.pack(Order::Stacked, 5, &[tensor], &mut Team::new(2).unwrap()).unwrap();
        assert_eq!((matrix.panels(), matrix.depth(), matrix.width()), (2, 5, 32));
        for column in 0..32 {
            for k in 0..6 {
                let index = bf16::index(k, column % LANES, LANES);
                // SAFETY: inside the panel.
                let got = unsafe { *matrix.panel(column / LANES).add(index) };
                let expected = if column < 20 && k < 5 { values[column * 5 + k] } else { 0.0 };
                assert_eq!(got.to_f32(), expected, "({k}, {column})");
            }
        }
    }
}
