//! Look-ups in the checkpoint's own embedding table. In a file, rows are read one by one and leave nothing behind; a map would
//! keep what lies around them resident, and with that soon the whole table.

use std::io;
use std::ptr::NonNull;
use std::sync::Arc;

use baton_model::{Dtype, Part, TensorFile};

use super::source::{Weights, checked};
use baton_backend::BackendError;

/// Read at once: a row of 2048 values in bf16.
const CHUNK_BYTES: usize = 4 << 10;

pub(crate) struct EmbeddingTable {
    dtype: Dtype,
    hidden: usize,
    rows: EmbeddingRows,
}

enum EmbeddingRows {
    File(TensorFile),
    Memory {
        /// Owns what `bytes` points at.
        _weights: Arc<dyn Weights>,
        bytes: NonNull<[u8]>,
    },
}

// SAFETY: it only reads the bytes, which no one writes.
unsafe impl Send for EmbeddingRows {}
// SAFETY: as above.
unsafe impl Sync for EmbeddingRows {}

impl EmbeddingTable {
    pub(crate) fn new(weights: &Arc<dyn Weights>) -> Result<Self, BackendError> {
        let hidden = weights.spec().hidden;
        let view = checked(&**weights, Part::Embedding, &[weights.spec().vocab, hidden])?;
        let rows = match weights.tensor_file(Part::Embedding).map_err(BackendError::Load)? {
            Some(file) => EmbeddingRows::File(file),
            None => EmbeddingRows::Memory { _weights: Arc::clone(weights), bytes: NonNull::from(view.bytes) },
        };
        Ok(Self { dtype: view.dtype, hidden, rows })
    }

    /// `hidden` = the token's row.
    pub(crate) fn read(&self, token: usize, hidden: &mut [f32]) -> io::Result<()> {
        let row_bytes = self.dtype.bytes_of(self.hidden);
        match &self.rows {
            EmbeddingRows::Memory { bytes, .. } => {
                // SAFETY: borrowed from the weights, which are shared and so stay as they are while this table holds them.
                let bytes = unsafe { bytes.as_ref() };
                self.dtype.read(&bytes[token * row_bytes..][..row_bytes], hidden);
            }
            EmbeddingRows::File(file) => {
                let mut buffer = [0; CHUNK_BYTES];
                let chunk_values = CHUNK_BYTES / self.dtype.block_bytes() * self.dtype.block_values();
                let mut offset = token * row_bytes;
                for values in hidden.chunks_mut(chunk_values) {
                    let bytes = &mut buffer[..self.dtype.bytes_of(values.len())];
                    file.read(offset, bytes)?;
                    self.dtype.read(bytes, values);
                    offset += bytes.len();
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_a_file_are_read_in_whole_blocks() {
        const BEGIN: usize = 96;
        for dtype in Dtype::ALL {
            // No multiple of a chunk.
            let (hidden, tokens) = (256 * 37, 3);
            let row_bytes = dtype.bytes_of(hidden);
            let bytes: Vec<u8> =
                (0..BEGIN + tokens * row_bytes).map(|i| ((i * 2_654_435_761) >> 13) as u8 & 0x3b).collect();
            let path = std::env::temp_dir().join(format!("baton-embedding-{}", std::process::id()));
            std::fs::write(&path, &bytes).unwrap();
            let file = TensorFile::new(Arc::new(std::fs::File::open(&path).unwrap()), BEGIN as u64);
            std::fs::remove_file(&path).unwrap();
            let table = EmbeddingTable { dtype, hidden, rows: EmbeddingRows::File(file) };
            for token in 0..tokens {
                let (mut expected, mut got) = (vec![0.0; hidden], vec![7.0; hidden]);
                dtype.read(&bytes[BEGIN + token * row_bytes..][..row_bytes], &mut expected);
                table.read(token, &mut got).unwrap();
                assert_eq!(got, expected, "{dtype}, token {token}");
            }
            assert!(table.read(tokens, &mut vec![0.0; hidden]).is_err());
        }
    }
}
