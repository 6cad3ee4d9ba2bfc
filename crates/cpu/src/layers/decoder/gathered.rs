//! Counts the bytes that shards read of each other's activations. A shard writes its columns to a shared buffer, and after the
//! phase all shards read all of them: that is the all-gather.

use baton_model::DecoderSpec;

use crate::shards::{Deal, Shards};

/// One entry per shard in each list; zeros where there is a single shard.
pub(super) struct Gathered {
    /// Bytes of one row in all layers.
    row_bytes: Vec<u64>,
    logits_bytes: Vec<u64>,
    bytes: Vec<u64>,
}

impl Gathered {
    pub(super) fn new(spec: &DecoderSpec, shards: &Shards) -> Self {
        let shared = shards.count > 1;
        let bytes = |columns: usize| if shared { (columns * size_of::<f32>()) as u64 } else { 0 };
        let each = |bytes_of: &dyn Fn(usize) -> u64| (0..shards.count).map(bytes_of).collect();
        Self {
            row_bytes: each(&|shard| {
                let columns = |rows| shards.rows(Deal::Panels, rows, shard).len();
                // Attended heads, then o, gate · up and down.
                let layer = shards.heads * shards.head_dim + 2 * columns(spec.hidden) + columns(spec.ffn);
                bytes(spec.layers * layer)
            }),
            logits_bytes: each(&|shard| bytes(shards.rows(Deal::Panels, spec.vocab, shard).len())),
            bytes: vec![0; shards.count],
        }
    }

    pub(super) fn count(&mut self, rows: usize, logits_rows: usize) {
        let each = self.bytes.iter_mut().zip(&self.row_bytes).zip(&self.logits_bytes);
        for ((bytes, row), logits) in each {
            *bytes += rows as u64 * row + logits_rows as u64 * logits;
        }
    }

    pub(super) fn bytes(&self) -> &[u64] {
        &self.bytes
    }
}
