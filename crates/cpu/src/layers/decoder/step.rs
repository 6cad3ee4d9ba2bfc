//! The phases of one step, in the order in which they run.

use std::ops::Range;

use baton_model::DecoderSpec;

use super::append::Append;
use super::head_norm::norm_head;
use super::phases::PhaseClock;
use super::{Layers, LogitsSink};
use crate::batch::Batch;
use crate::layers::attention::{Attention, AttentionCut, BlockProducts, Partials};
use crate::layers::rope::RopeTable;
use crate::matmul::arithmetic::LeftOperand;
use crate::matmul::gemm::{Gemm, Output};
use crate::matmul::multiply::{Multiply, Packed};
use crate::matmul::norm::RmsNorm;
use crate::matmul::quant::QuantMatmul;
use crate::matmul::rows::{LeftRows, Normed, Which};
use crate::memory::kv::{KeyScales, KvPool};
use crate::memory::shared::Shared;
use crate::memory::workspace::{Scratch, Widths};
use crate::shards::Shards;
use crate::simd::isa::Isa;
use crate::threads::team::{Member, Stopped};
use crate::weights::{DecoderWeights, EmbeddingTable, Layer, Phase, Projection};

/// One step, shared by all members. Each phase writes buffers that it does not read, except rows or columns of its own item;
/// the end of the phase makes them readable to all. That is the all-gather between shards: each writes its columns of a
/// buffer, and nothing is summed across them.
pub(super) struct Step<'a, W: Multiply, K: BlockProducts> {
    pub(super) isa: Isa,
    pub(super) members: usize,
    /// The largest number of members of a shard.
    pub(super) shard_members: usize,
    pub(super) spec: &'a DecoderSpec,
    pub(super) shards: Shards,
    pub(super) embedding: &'a EmbeddingTable,
    pub(super) weights: &'a DecoderWeights<W>,
    pub(super) quant_matmul: QuantMatmul,
    pub(super) rope: &'a RopeTable,
    pub(super) kv: &'a KvPool<K>,
    pub(super) key_scales: Option<&'a KeyScales>,
    pub(super) batch: &'a Batch,
    pub(super) attention: &'a AttentionCut,
    pub(super) partials: Partials<'a>,
    pub(super) sink: &'a dyn LogitsSink,
    pub(super) layers: Layers<'a>,
    pub(super) clock: Option<&'a PhaseClock>,
    pub(super) widths: Widths,
    pub(super) hidden: Shared<'a, f32>,
    pub(super) qkv: Shared<'a, f32>,
    pub(super) attended: LeftOperand<'a, W>,
    pub(super) gated: LeftOperand<'a, W>,
    pub(super) logits: Shared<'a, f32>,
    pub(super) logits_rows: usize,
    pub(super) scratch: Shared<'a, Scratch<W, K>>,
}

impl<'a, W: Multiply, K: BlockProducts> Step<'a, W, K> {
    pub(super) fn run(&self, member: &Member<'_>) -> Result<(), Stopped> {
        self.embed(member)?;
        self.done(Phase::Embed, 0);
        for (index, layer) in self.weights.layers.iter().enumerate() {
            self.attention_layer(member, index, layer)?;
            self.feed_forward(member, index, layer)?;
        }
        self.logits(member)?;
        self.done(Phase::Logits, self.weights.layers.len().saturating_sub(1));
        Ok(())
    }

    /// Reports the end of a phase to the clock, if there is one.
    fn done(&self, phase: Phase, layer: usize) {
        if let Some(clock) = self.clock {
            clock.done(phase, layer);
        }
    }

    fn attention_layer(&self, member: &Member<'_>, index: usize, layer: &'a Layer<W>) -> Result<(), Stopped> {
        let Widths { hidden, qkv, .. } = self.widths;
        let x = LeftRows::Normed(self.normed(&layer.attention_norm));
        self.project(member, x, &layer.qkv, self.quant_matmul, Output::Store { y: self.qkv, stride: qkv })?;
        self.done(Phase::Qkv, index);
        self.norm_heads(member, layer)?;
        self.store_kv(member, index)?;
        self.done(Phase::StoreKv, index);
        if member.index() == 0 {
            self.layers.count_one();
        }
        self.attend(member, index)?;
        self.done(Phase::Attention, index);
        let residual = Output::AddTo { y: self.hidden, stride: hidden };
        self.project(member, LeftRows::Stored(self.attended), &layer.o, self.quant_matmul, residual)?;
        self.done(Phase::Output, index);
        Ok(())
    }

    fn feed_forward(&self, member: &Member<'_>, index: usize, layer: &'a Layer<W>) -> Result<(), Stopped> {
        let x = LeftRows::Normed(self.normed(&layer.ffn_norm));
        self.project(member, x, &layer.gate_up, self.quant_matmul, Output::Gated(self.gated))?;
        self.done(Phase::GateUp, index);
        let residual = Output::AddTo { y: self.hidden, stride: self.widths.hidden };
        self.project(member, LeftRows::Stored(self.gated), &layer.down, self.quant_matmul, residual)?;
        self.done(Phase::Down, index);
        Ok(())
    }

    fn embed(&self, member: &Member<'_>) -> Result<(), Stopped> {
        let blocks = RowBlocks::new(self.batch.rows.len(), self.members);
        member.each(blocks.count(), |block| {
            for row in blocks.rows(block) {
                let first = row * self.widths.hidden;
                // SAFETY: this row is one item's alone.
                let hidden = unsafe { self.hidden.slice_mut(first..first + self.spec.hidden) };
                if let Err(error) = self.embedding.read(self.batch.rows[row].token.index(), hidden) {
                    return member.fail(format!("cannot look up a token in the model's file: {error}"));
                }
            }
        })
    }

    /// All rows of the residual stream, normed.
    fn normed(&self, weight: &'a [f32]) -> Normed<'a> {
        Normed {
            x: self.hidden,
            stride: self.widths.hidden,
            which: Which::First(self.batch.rows.len()),
            norm: RmsNorm { weight, hidden: self.spec.hidden, eps: self.spec.norm_eps },
        }
    }

    /// A matmul with weights. It never writes what it reads.
    fn project(
        &self,
        member: &Member<'_>,
        x: LeftRows<'a, W>,
        weights: &[Projection<W>],
        quant_matmul: QuantMatmul,
        y: Output<'a, W>,
    ) -> Result<(), Stopped> {
        let gemm = Gemm { x, weights, quant_matmul, y };
        let split = gemm.split(self.isa, self.shard_members);
        // SAFETY: this member's own.
        let packed = unsafe { &mut self.scratch.get_mut(member.index()).packed };
        packed.clear();
        if self.shards.count > 1 {
            let items = |shard| gemm.items(&split, shard, 0);
            return member
                .each_of_shards(items, |shard, item| self.isa.run(gemm.kernel(&split, shard, (0, item), packed)));
        }
        let items = |queue| gemm.items(&split, 0, queue);
        member.each_of_queues(split.queues, items, |queue, item| {
            self.isa.run(gemm.kernel(&split, 0, (queue, item), packed));
        })
    }

    /// Norms the heads of q and k in place, for models that have such norms.
    fn norm_heads(&self, member: &Member<'_>, layer: &Layer<W>) -> Result<(), Stopped> {
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
        // SAFETY: this member's own.
        let turned = unsafe { &mut self.scratch.get_mut(member.index()).turned };
        member.each_of_shards(
            |_| blocks.count(),
            |shard, block| {
                let rows = blocks.rows(block);
                let append = Append {
                    kv: self.kv.shard(shard),
                    layer,
                    key_scales: self.key_scales.map(|scales| scales.keys(layer, self.shards.kv_rows(shard))),
                    rope: self.rope,
                    shards: self.shards,
                    at: &self.batch.rows[rows.clone()],
                    qkv: self.qkv,
                    first: rows.start * self.widths.qkv + shard * self.widths.shard_qkv,
                    stride: self.widths.qkv,
                    turned,
                };
                self.isa.run(append);
            },
        )
    }

    fn attend(&self, member: &Member<'_>, layer: usize) -> Result<(), Stopped> {
        let kv_heads = self.shards.kv_heads;
        let attention = |shard| Attention {
            kv: self.kv.shard(shard),
            layer,
            query_scales: self.key_scales.map(|scales| scales.queries(layer, self.shards.kv_rows(shard))),
            rope: self.rope,
            shards: self.shards,
            shard,
            qkv: self.qkv,
            qkv_stride: self.widths.qkv,
            qkv_first: shard * self.widths.shard_qkv,
            partials: self.partials,
        };
        // SAFETY: this member's own.
        let scratch = unsafe { &mut self.scratch.get_mut(member.index()).attention };
        let (items, queues) = (self.attention.items(), self.attention.queues());
        // The item that this member probably takes next, whose queries are prefetched: members of one queue take its items in turn, and
        // even a queue of its own is shared at the end of the phase.
        let until_next = self.shard_members.div_ceil(queues.len()).max(2).min(self.shard_members);
        let mut attend = |shard: usize, item: usize| {
            let (attention, next) = (attention(shard), item + until_next);
            let now = attention.item(self.batch, &items[item / kv_heads], item % kv_heads, scratch, self.attended);
            self.isa.run(match items.get(next / kv_heads) {
                Some(rows) => now.before(&attention, self.batch, rows, next % kv_heads),
                None => now,
            });
        };
        if self.shards.count > 1 {
            member.each_of_shards(|_| items.len() * kv_heads, attend)?;
        } else {
            let of_queue = |queue: usize| queues[queue].len() * kv_heads;
            member.each_of_queues(queues.len(), of_queue, |queue, item| {
                attend(0, queues[queue].start * kv_heads + item);
            })?;
        }
        let folds = self.attention.folds();
        member.each_of_shards(
            |_| folds.len() * kv_heads,
            |shard, item| {
                let rows = &folds[item / kv_heads];
                self.isa.run(attention(shard).fold(self.batch, rows, item % kv_heads, scratch, self.attended));
            },
        )
    }

    /// Logits of the wanted rows, in groups that fit the buffer.
    fn logits(&self, member: &Member<'_>) -> Result<(), Stopped> {
        let vocab = self.widths.vocab;
        for first in (0..self.batch.wanted.len()).step_by(self.logits_rows) {
            let wanted = &self.batch.wanted[first..self.batch.wanted.len().min(first + self.logits_rows)];
            let x = Normed { which: Which::Listed(wanted), ..self.normed(&self.weights.final_norm) };
            let logits = Output::Store { y: self.logits, stride: vocab };
            // Logits are not averaged by later layers, so quantized weights are multiplied as integers, which round least.
            self.project(member, LeftRows::Normed(x), &self.weights.head, QuantMatmul::Integer, logits)?;
            member.each(wanted.len(), |i| {
                // SAFETY: this item's row.
                let logits = unsafe { self.logits.slice_mut(i * vocab..i * vocab + self.spec.vocab) };
                self.sink.take(wanted[i].number, logits, member.index());
            })?;
        }
        Ok(())
    }
}

/// Divides the rows of a phase with little work per row into items of several rows.
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
