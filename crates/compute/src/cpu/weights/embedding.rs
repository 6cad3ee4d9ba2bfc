//! Look-ups in the checkpoint's own embedding table.

use std::ptr::NonNull;
use std::sync::Arc;

use baton_model::{Dtype, Part};

use super::source::{Weights, checked};
use crate::ComputeError;

pub(crate) struct EmbeddingTable {
    /// Owns what `bytes` points at.
    _weights: Arc<dyn Weights>,
    dtype: Dtype,
    hidden: usize,
    bytes: NonNull<[u8]>,
}

// SAFETY: it only reads the bytes, which nobody writes.
unsafe impl Send for EmbeddingTable {}
// SAFETY: as above.
unsafe impl Sync for EmbeddingTable {}

impl EmbeddingTable {
    pub(crate) fn new(weights: &Arc<dyn Weights>) -> Result<Self, ComputeError> {
        let hidden = weights.spec().hidden;
        let view = checked(&**weights, Part::Embedding, &[weights.spec().vocab, hidden])?;
        let (dtype, bytes) = (view.dtype, NonNull::from(view.bytes));
        Ok(Self { _weights: Arc::clone(weights), dtype, hidden, bytes })
    }

    /// `hidden` = the token's row.
    pub(crate) fn read(&self, token: usize, hidden: &mut [f32]) {
        // SAFETY: borrowed from the weights, which are shared and so stay as they are while this table holds them.
        let bytes = unsafe { self.bytes.as_ref() };
        let row_bytes = self.dtype.bytes_of(self.hidden);
        self.dtype.read(&bytes[token * row_bytes..(token + 1) * row_bytes], hidden);
    }
}
