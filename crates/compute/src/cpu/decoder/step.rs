//! One step's phases, in the order they run.

use std::ops::Range;

use baton_core::PAGE_TOKENS;
use baton_model::DecoderSpec;

use super::LogitsSink;
use super::head_norm::norm_head;
use crate::LayerHook;
use crate::cpu::attention::{Attention, AttentionCut, Partials};
use crate::cpu::batch::Batch;
use crate::cpu::element::Element;
use crate::cpu::gemm::{Epilogue, Gemm};
use crate::cpu::isa::Isa;
use crate::cpu::kv::KvPool;
use crate::cpu::norm::RmsNorm;
use crate::cpu::packed_rows::{Rows, Which};
use crate::cpu::rope::RopeTable;
use crate::cpu::shards::Shards;
use crate::cpu::shared::Shared;
use crate::cpu::team::{Member, Stopped};
use crate::cpu::weights::{DecoderWeights, EmbeddingTable, Layer, Projection};
use crate::cpu::workspace::{Scratch, Widths};

/// One step, as every member sees it. Each phase writes buffers that it does not read, except rows or columns of its own
/// item; the end of the phase makes them readable to all. That is the all-gather between shards: each writes its columns of
/// a buffer, and nothing is summed across them.
pub(super) struct Step<'a, E> {
    pub(super) isa: Isa,
    pub(super) members: usize,
    /// The most members that a shard has.
    pub(super) shard_members: usize,
    pub(super) spec: &'a DecoderSpec,
    pub(super) shards: Shards,
    pub(super) embedding: &'a EmbeddingTable,
    pub(super) weights: &'a DecoderWeights<E>,
    pub(super) rope: &'a RopeTable,
    pub(super) kv: &'a KvPool<E>,
    pub(super) batch: &'a Batch,
    pub(super) attention: &'a AttentionCut,
    pub(super) partials: Partials<'a>,
    pub(super) sink: &'a dyn LogitsSink,
    pub(super) on_layer: Option<&'a LayerHook>,
    pub(super) widths: Widths,
    pub(super) hidden: Shared<'a, f32>,
    pub(super) qkv: Shared<'a, f32>,
    pub(super) attended: Shared<'a, f32>,
    pub(super) gated: Shared<'a, f32>,
    pub(super) logits: Shared<'a, f32>,
    pub(super) logits_rows: usize,
    pub(super) scratch: Shared<'a, Scratch>,
}

impl<'a, E: Element> Step<'a, E> {
    pub(super) fn run(&self, member: &Member<'_>) -> Result<(), Stopped> {
        self.embed(member)?;
        for (index, layer) in self.weights.layers.iter().enumerate() {
            self.attention_layer(member, index, layer)?;
            self.feed_forward(member, layer)?;
        }
        self.logits(member)
    }

    fn attention_layer(&self, member: &Member<'_>, index: usize, layer: &'a Layer<E>) -> Result<(), Stopped> {
        let Widths { hidden, qkv, attended, .. } = self.widths;
        let x = self.all(self.hidden, hidden, self.norm(&layer.attention_norm));
        self.project(member, x, &layer.qkv, (self.qkv, qkv), Epilogue::Store)?;
        self.norm_heads(member, layer)?;
        self.store_kv(member, index)?;
        if let (Some(hook), 0) = (self.on_layer, member.index()) {
            hook.layer_done(index as u32);
        }
        self.attend(member, index)?;
        let x = self.all(self.attended, attended, None);
        self.project(member, x, &layer.o, (self.hidden, hidden), Epilogue::AddTo)
    }

    fn feed_forward(&self, member: &Member<'_>, layer: &'a Layer<E>) -> Result<(), Stopped> {
        let Widths { hidden, ffn, .. } = self.widths;
        let x = self.all(self.hidden, hidden, self.norm(&layer.ffn_norm));
        self.project(member, x, &layer.gate_up, (self.gated, ffn), Epilogue::Gated)?;
        self.project(member, self.all(self.gated, ffn, None), &layer.down, (self.hidden, hidden), Epilogue::AddTo)
    }

    fn embed(&self, member: &Member<'_>) -> Result<(), Stopped> {
        let blocks = RowBlocks::new(self.batch.rows.len(), self.members);
        member.each(blocks.count(), |block| {
            for row in blocks.rows(block) {
                let first = row * self.widths.hidden;
                // SAFETY: this row is one item's alone.
                let hidden = unsafe { self.hidden.slice_mut(first..first + self.spec.hidden) };
                self.embedding.read(self.batch.rows[row].token.index(), hidden);
            }
        })
    }

    fn norm(&self, weight: &'a [f32]) -> Option<RmsNorm<'a>> {
        Some(RmsNorm { weight, hidden: self.spec.hidden, eps: self.spec.norm_eps })
    }

    /// All rows of a buffer; a product never writes the one it reads.
    fn all(&self, x: Shared<'a, f32>, stride: usize, norm: Option<RmsNorm<'a>>) -> Rows<'a> {
        Rows { x, stride, which: Which::First(self.batch.rows.len()), norm }
    }

    /// `to` (+)= `x` · W; `to` is a buffer and its row stride.
    fn project(
        &self,
        member: &Member<'_>,
        x: Rows<'a>,
        weights: &[Projection<E>],
        to: (Shared<'a, f32>, usize),
        epilogue: Epilogue,
    ) -> Result<(), Stopped> {
        let gemm = Gemm { x, weights, y: to.0, y_stride: to.1, epilogue };
        let cut = gemm.cut(self.shard_members);
        // SAFETY: this member's own.
        let packed = unsafe { &mut self.scratch.get_mut(member.index()).packed };
        packed.clear();
        member.each_of_shards(
            |shard| gemm.items(&cut, shard),
            |shard, item| self.isa.run(gemm.item(&cut, shard, item, packed)),
        )
    }

    /// Of q and k in place, for models that have such norms.
    fn norm_heads(&self, member: &Member<'_>, layer: &Layer<E>) -> Result<(), Stopped> {
        let Some(norms) = &layer.head_norms else { return Ok(()) };
        let Shards { heads, kv_heads, head_dim, .. } = self.shards;
        let blocks = RowBlocks::new(self.batch.rows.len(), self.shard_members);
        member.each_of_shards(
            |_| blocks.count(),
            |shard, block| {
                for row in blocks.rows(block) {
                    let first = row * self.widths.qkv + shard * self.widths.shard_qkv;
                    // SAFETY: this row of this shard is one item's alone.
                    let qk = unsafe { self.qkv.slice_mut(first..first + (heads + kv_heads) * head_dim) };
                    let (q, k) = qk.split_at_mut(heads * head_dim);
                    q.chunks_mut(head_dim).for_each(|head| norm_head(head, &norms.q, self.spec.norm_eps));
                    k.chunks_mut(head_dim).for_each(|head| norm_head(head, &norms.k, self.spec.norm_eps));
                }
            },
        )
    }

    fn store_kv(&self, member: &Member<'_>, layer: usize) -> Result<(), Stopped> {
        let blocks = RowBlocks::new(self.batch.rows.len(), self.shard_members);
        member.each_of_shards(
            |_| blocks.count(),
            |shard, block| {
                for row in blocks.rows(block) {
                    for head in 0..self.shards.kv_heads {
                        self.store_head(layer, shard, row, head);
                    }
                }
            },
        )
    }

    fn store_head(&self, layer: usize, shard: usize, row: usize, head: usize) {
        let Shards { heads, kv_heads, head_dim, .. } = self.shards;
        let first = row * self.widths.qkv + shard * self.widths.shard_qkv + heads * head_dim;
        let (k, v) = (first + head * head_dim, first + (kv_heads + head) * head_dim);
        // SAFETY: this row of this shard is one item's alone.
        let (k, v) = unsafe { (self.qkv.slice_mut(k..k + head_dim), self.qkv.slice(v..v + head_dim)) };
        let at = &self.batch.rows[row];
        self.rope.rotate_in_place(at.position, k);
        // SAFETY: a position of a sequence is computed once per step, and attention is a later phase.
        unsafe { self.kv.shard(shard).store(layer, (at.page, at.position % PAGE_TOKENS), head, k, v) };
    }

    fn attend(&self, member: &Member<'_>, layer: usize) -> Result<(), Stopped> {
        let kv_heads = self.shards.kv_heads;
        let attention = |shard| Attention {
            kv: self.kv.shard(shard),
            layer,
            rope: self.rope,
            shards: self.shards,
            shard,
            qkv: self.qkv,
            qkv_stride: self.widths.qkv,
            qkv_first: shard * self.widths.shard_qkv,
            out: self.attended,
            out_stride: self.widths.attended,
            partials: self.partials,
        };
        // SAFETY: this member's own.
        let scratch = unsafe { &mut self.scratch.get_mut(member.index()).attention };
        let (items, folds) = (self.attention.items(), self.attention.folds());
        member.each_of_shards(
            |_| items.len() * kv_heads,
            |shard, item| {
                let rows = &items[item / kv_heads];
                self.isa.run(attention(shard).item(self.batch, rows, item % kv_heads, scratch));
            },
        )?;
        member.each_of_shards(
            |_| folds.len() * kv_heads,
            |shard, item| {
                let rows = &folds[item / kv_heads];
                self.isa.run(attention(shard).fold(self.batch, rows, item % kv_heads, scratch));
            },
        )
    }

    /// Logits of the wanted rows, in groups that fit the buffer.
    fn logits(&self, member: &Member<'_>) -> Result<(), Stopped> {
        let Widths { hidden, vocab, .. } = self.widths;
        for first in (0..self.batch.wanted.len()).step_by(self.logits_rows) {
            let wanted = &self.batch.wanted[first..self.batch.wanted.len().min(first + self.logits_rows)];
            let x = self.all(self.hidden, hidden, self.norm(&self.weights.final_norm));
            let x = Rows { which: Which::Listed(wanted), ..x };
            self.project(member, x, &self.weights.head, (self.logits, vocab), Epilogue::Store)?;
            member.each(wanted.len(), |i| {
                // SAFETY: this item's row.
                let logits = unsafe { self.logits.slice_mut(i * vocab..i * vocab + self.spec.vocab) };
                self.sink.take(first + i, logits, member.index());
            })?;
        }
        Ok(())
    }
}

/// Items of a phase of little work per row: some rows each.
#[derive(Clone, Copy)]
struct RowBlocks {
    rows: usize,
    block: usize,
}

impl RowBlocks {
    fn new(rows: usize, members: usize) -> Self {
        Self { rows, block: rows.div_ceil(4 * members).clamp(1, 32) }
    }

    fn count(self) -> usize {
        self.rows.div_ceil(self.block)
    }

    fn rows(self, block: usize) -> Range<usize> {
        block * self.block..self.rows.min((block + 1) * self.block)
    }
}
