//! One tensor as it is stored in the file.

use crate::Dtype;

#[derive(Clone, Copy, Debug)]
pub struct TensorView<'a> {
    pub dtype: Dtype,
    pub shape: &'a [usize],
    /// Little-endian, row-major. Rows consist of whole blocks.
    pub bytes: &'a [u8],
    pub rows: RowOrder,
}

/// The order of a matrix's rows in the file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RowOrder {
    #[default]
    Plain,
    /// The order of q and k in files of llama.cpp's converter: dimensions that are rotated together are adjacent, not half a head
    /// apart.
    ///
    /// ```text
    ///   wanted   0 1 2 3 | 4 5 6 7      head_dim 8: 0 is rotated with 4, 1 with 5 …
    ///   file     0 4 1 5   2 6 3 7
    /// ```
    PairsTogether { head_dim: usize },
}

impl RowOrder {
    pub fn in_file(self, row: usize) -> usize {
        match self {
            Self::Plain => row,
            Self::PairsTogether { head_dim } => {
                let (head, dim, half) = (row / head_dim, row % head_dim, head_dim / 2);
                head * head_dim + dim % half * 2 + dim / half
            }
        }
    }
}

impl<'a> TensorView<'a> {
    pub fn new(dtype: Dtype, shape: &'a [usize], bytes: &'a [u8]) -> Self {
        Self { dtype, shape, bytes, rows: RowOrder::Plain }
    }

    /// The bytes of a row of a matrix; empty if there is no such row.
    pub fn row(&self, row: usize) -> &'a [u8] {
        let row_bytes = self.dtype.bytes_of(self.shape.last().copied().unwrap_or_default());
        let begin = self.rows.in_file(row) * row_bytes;
        self.bytes.get(begin..begin + row_bytes).unwrap_or_default()
    }

    /// All values of a vector, in the order that the model needs.
    pub fn vector(&self) -> Vec<f32> {
        let mut in_file = vec![0.0; self.shape.iter().product()];
        self.dtype.read(self.bytes, &mut in_file);
        match self.rows {
            RowOrder::Plain => in_file,
            order => (0..in_file.len()).map(|row| in_file[order.in_file(row)]).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_found_where_the_file_has_them() {
        let file_rows: Vec<u8> = vec![0, 4, 1, 5, 2, 6, 3, 7, 8, 12, 9, 13, 10, 14, 11, 15];
        let bytes: Vec<u8> = file_rows.iter().flat_map(|row| f32::from(*row).to_le_bytes()).collect();
        let plain = TensorView::new(Dtype::F32, &[16, 1], &bytes);
        let paired = TensorView { rows: RowOrder::PairsTogether { head_dim: 8 }, ..plain };
        for (row, in_file) in file_rows.iter().enumerate() {
            assert_eq!(paired.row(row), (row as f32).to_le_bytes());
            assert_eq!(plain.row(row), f32::from(*in_file).to_le_bytes());
        }
        assert!(paired.row(16).is_empty());
        let bias = TensorView { shape: &[16], ..paired };
        assert_eq!(bias.vector(), (0..16).map(|row| row as f32).collect::<Vec<_>>());
    }
}
