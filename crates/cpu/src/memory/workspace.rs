//! Buffers of a step, allocated once for the largest step there can be. Rows are padded to whole vectors; the padding stays zero,
//! since the padding of weights is zero.

use baton_model::DecoderSpec;

use super::region::{Buffer, Floats};
use crate::layers::attention::{AttentionScratch, BlockProducts, PartialBuffers};
use crate::matmul::multiply::{Multiply, Packed};
use crate::shards::Shards;
use crate::simd::vector::padded;
use baton_backend::BackendError;

/// For weights of type `W` and KV of type `K`.
pub(crate) struct Workspace<W: Multiply, K: BlockProducts> {
    pub(crate) widths: Widths,
    /// The residual stream.
    pub(crate) hidden: Floats,
    pub(crate) qkv: Floats,
    pub(crate) attended: Buffer<W::Left>,
    pub(crate) gated: Buffer<W::Left>,
    /// Logits of one group of wanted rows.
    pub(crate) logits: Floats,
    pub(crate) logits_rows: usize,
    pub(crate) partials: PartialBuffers,
    /// One per member.
    pub(crate) scratch: Vec<Scratch<W, K>>,
}

/// Buffers of one member.
pub(crate) struct Scratch<W: Multiply, K: BlockProducts> {
    pub(crate) attention: AttentionScratch<K>,
    pub(crate) packed: W::Packed,
    /// Buffer for one rotated head.
    pub(crate) turned: Vec<f32>,
}

/// Columns of a row, which are its stride where it is f32.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Widths {
    pub(crate) hidden: usize,
    /// Columns of one shard; a row holds those of all shards, one after the other.
    pub(crate) shard_qkv: usize,
    pub(crate) qkv: usize,
    pub(crate) attended: usize,
    pub(crate) ffn: usize,
    pub(crate) vocab: usize,
}

/// Bounds of the logits that are held at once: enough rows for a decode batch, fewer for large vocabularies.
const LOGITS_BYTES: usize = 32 << 20;
const LOGITS_ROWS: usize = 64;

impl<W: Multiply, K: BlockProducts> Workspace<W, K> {
    pub(crate) fn new(
        spec: &DecoderSpec,
        shards: &Shards,
        max_rows: usize,
        partial_blocks: usize,
        members: usize,
    ) -> Result<Self, BackendError> {
        let shard_qkv = padded((shards.heads + 2 * shards.kv_heads) * shards.head_dim);
        let widths = Widths {
            hidden: padded(spec.hidden),
            shard_qkv,
            qkv: shards.count * shard_qkv,
            attended: padded(spec.heads * spec.head_dim),
            ffn: padded(spec.ffn),
            vocab: padded(spec.vocab),
        };
        let max_depth = widths.hidden.max(widths.attended).max(widths.ffn);
        let logits_rows = (LOGITS_BYTES / (widths.vocab * size_of::<f32>())).clamp(1, LOGITS_ROWS).min(max_rows.max(1));
        Ok(Self {
            widths,
            hidden: Floats::new(max_rows * widths.hidden)?,
            qkv: Floats::new(max_rows * widths.qkv)?,
            attended: Buffer::new(W::left_operand_elements(max_rows, widths.attended))?,
            gated: Buffer::new(W::left_operand_elements(max_rows, widths.ffn))?,
            logits: Floats::new(logits_rows * widths.vocab)?,
            logits_rows,
            partials: PartialBuffers::new(partial_blocks, spec.heads, padded(spec.head_dim))?,
            scratch: (0..members)
                .map(|_| {
                    let attention = AttentionScratch::new(spec.head_dim)?;
                    let turned = vec![0.0; spec.head_dim];
                    Ok(Scratch { attention, packed: Packed::new(max_rows, spec.hidden, max_depth)?, turned })
                })
                .collect::<Result<_, BackendError>>()?,
        })
    }
}
