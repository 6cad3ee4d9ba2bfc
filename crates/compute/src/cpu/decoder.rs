//! The forward pass of a step: all rows of all segments go through each layer together.

use std::ops::Range;
use std::sync::Arc;

use baton_core::{PAGE_TOKENS, PageId};
use baton_model::{DecoderSpec, Part, TensorView};

use super::attention::{Attention, AttentionItem, BLOCK_ROWS};
use super::batch::{Batch, SegmentRows};
use super::element::Element;
use super::gemm::{Epilogue, Gemm};
use super::isa::Isa;
use super::kv::{KvPool, KvShape};
use super::norm::RmsNorm;
use super::packed_rows::{Rows, Which};
use super::rope::RopeTable;
use super::shared::Shared;
use super::team::{Member, Stopped, Team};
use super::weights::{DecoderWeights, Layer, Progress, Projection, SharedWeights, read_row};
use super::workspace::{Scratch, Widths, Workspace};
use crate::{ComputeError, LayerHook};

/// Takes rows of logits, on any member and in any order.
pub(crate) trait LogitsSink: Sync {
    /// `wanted` is an index into [`Batch::wanted`]; each comes once.
    fn take(&self, wanted: usize, logits: &mut [f32], member: usize);
}

/// A model ready to run, whatever its weights and KV are stored as.
pub(crate) trait Decode: Send {
    fn step(&mut self, batch: &Batch, sink: &dyn LogitsSink, on_layer: Option<&LayerHook>) -> Result<(), ComputeError>;

    fn kv_pool(&self) -> &Arc<baton_fabric::KvPool>;

    /// The residual stream after the last layer, of all rows of the last step.
    fn hidden(&self, row: usize) -> &[f32];

    /// Appends a page in canonical order.
    fn export(&self, page: PageId, layers: Range<usize>, tokens: usize, bytes: &mut Vec<u8>);
}

pub(crate) struct Decoder<E> {
    isa: Isa,
    team: Team,
    source: SharedWeights,
    weights: DecoderWeights<E>,
    rope: RopeTable,
    kv: KvPool<E>,
    workspace: Workspace,
    attention_items: Vec<AttentionRows>,
}

/// Query rows of one attention item, for every KV head.
struct AttentionRows {
    segment: usize,
    rows: Range<usize>,
}

pub(crate) struct DecoderSizes {
    pub(crate) pages: usize,
    pub(crate) context: usize,
    pub(crate) max_rows: usize,
}

impl<E: Element> Decoder<E> {
    pub(crate) fn load(
        source: SharedWeights,
        isa: Isa,
        mut team: Team,
        sizes: &DecoderSizes,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Self, ComputeError> {
        let spec = source.spec().clone();
        let shape = KvShape { layers: spec.layers, pages: sizes.pages, heads: spec.kv_heads, head_dim: spec.head_dim };
        Ok(Self {
            isa,
            weights: DecoderWeights::load(&*source, &mut team, progress)?,
            rope: RopeTable::new(&spec.rope, spec.head_dim, sizes.context),
            kv: KvPool::new(shape)?,
            workspace: Workspace::new(&spec, sizes.max_rows, team.size())?,
            attention_items: Vec::new(),
            team,
            source,
        })
    }

    fn cut_attention(&mut self, batch: &Batch) {
        let spec = self.source.spec();
        let group = spec.heads / spec.kv_heads;
        self.attention_items.clear();
        for (segment, SegmentRows { rows, .. }) in batch.segments.iter().enumerate() {
            let rows = rows.len() * group;
            for first in (0..rows).step_by(BLOCK_ROWS) {
                self.attention_items.push(AttentionRows { segment, rows: first..rows.min(first + BLOCK_ROWS) });
            }
        }
        // Long ones first: the phase ends when the last item does.
        let tokens_seen = |item: &AttentionRows| batch.segments[item.segment].first_position + item.rows.end / group;
        self.attention_items.sort_by_key(|item| std::cmp::Reverse(tokens_seen(item)));
    }
}

impl<E: Element> Decode for Decoder<E> {
    fn step(&mut self, batch: &Batch, sink: &dyn LogitsSink, on_layer: Option<&LayerHook>) -> Result<(), ComputeError> {
        self.cut_attention(batch);
        let embedding = self.source.tensor(Part::Embedding).map_err(ComputeError::Device)?;
        let workspace = &mut self.workspace;
        let step = Step {
            isa: self.isa,
            members: self.team.size(),
            spec: self.source.spec(),
            embedding,
            weights: &self.weights,
            rope: &self.rope,
            kv: &self.kv,
            batch,
            attention_items: &self.attention_items,
            sink,
            on_layer,
            widths: workspace.widths,
            hidden: Shared::new(workspace.hidden.as_mut_slice()),
            qkv: Shared::new(workspace.qkv.as_mut_slice()),
            attended: Shared::new(workspace.attended.as_mut_slice()),
            gated: Shared::new(workspace.gated.as_mut_slice()),
            logits: Shared::new(workspace.logits.as_mut_slice()),
            logits_rows: workspace.logits_rows,
            scratch: Shared::new(&mut workspace.scratch),
        };
        self.team.run(&|member: &Member<'_>| step.run(member))
    }

    fn kv_pool(&self) -> &Arc<baton_fabric::KvPool> {
        self.kv.memory()
    }

    fn hidden(&self, row: usize) -> &[f32] {
        &self.workspace.hidden.as_slice()[row * self.workspace.widths.hidden..][..self.source.spec().hidden]
    }

    fn export(&self, page: PageId, layers: Range<usize>, tokens: usize, bytes: &mut Vec<u8>) {
        // SAFETY: `&self`: no step runs.
        unsafe { self.kv.export(page, layers, tokens, bytes) };
    }
}

/// One step, as every member sees it. Each phase writes buffers that it does not read, except rows or columns of its own
/// item; the end of the phase makes them readable to all.
struct Step<'a, E> {
    isa: Isa,
    members: usize,
    spec: &'a DecoderSpec,
    embedding: TensorView<'a>,
    weights: &'a DecoderWeights<E>,
    rope: &'a RopeTable,
    kv: &'a KvPool<E>,
    batch: &'a Batch,
    attention_items: &'a [AttentionRows],
    sink: &'a dyn LogitsSink,
    on_layer: Option<&'a LayerHook>,
    widths: Widths,
    hidden: Shared<'a, f32>,
    qkv: Shared<'a, f32>,
    attended: Shared<'a, f32>,
    gated: Shared<'a, f32>,
    logits: Shared<'a, f32>,
    logits_rows: usize,
    scratch: Shared<'a, Scratch>,
}

impl<'a, E: Element> Step<'a, E> {
    fn run(&self, member: &Member<'_>) -> Result<(), Stopped> {
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
        self.each_row(member, |row| {
            let first = row * self.widths.hidden;
            // SAFETY: this row is one item's alone.
            let hidden = unsafe { self.hidden.slice_mut(first..first + self.spec.hidden) };
            read_row(&self.embedding, self.batch.rows[row].token.index(), hidden);
        })
    }

    /// A phase of little work per row: some rows are one item.
    fn each_row(&self, member: &Member<'_>, mut body: impl FnMut(usize)) -> Result<(), Stopped> {
        let rows = self.batch.rows.len();
        let block = rows.div_ceil(4 * self.members).clamp(1, 32);
        member.each(rows.div_ceil(block), |item| (item * block..rows.min((item + 1) * block)).for_each(&mut body))
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
        weights: &Projection<E>,
        to: (Shared<'a, f32>, usize),
        epilogue: Epilogue,
    ) -> Result<(), Stopped> {
        let gemm = Gemm { x, weights, y: to.0, y_stride: to.1, epilogue };
        let cut = gemm.cut(self.members);
        // SAFETY: this member's own.
        let packed = unsafe { &mut self.scratch.get_mut(member.index()).packed };
        packed.clear();
        member.each(cut.items(), |item| self.isa.run(gemm.item(&cut, item, packed)))
    }

    fn store_kv(&self, member: &Member<'_>, layer: usize) -> Result<(), Stopped> {
        self.each_row(member, |row| {
            for head in 0..self.spec.kv_heads {
                self.store_head(layer, row, head);
            }
        })
    }

    fn store_head(&self, layer: usize, row: usize, head: usize) {
        let &DecoderSpec { heads, kv_heads, head_dim, .. } = self.spec;
        let first = row * self.widths.qkv + heads * head_dim;
        let (k, v) = (first + head * head_dim, first + (kv_heads + head) * head_dim);
        // SAFETY: this row is one item's alone.
        let (k, v) = unsafe { (self.qkv.slice_mut(k..k + head_dim), self.qkv.slice(v..v + head_dim)) };
        let at = &self.batch.rows[row];
        self.rope.rotate_in_place(at.position, k);
        // SAFETY: a position of a sequence is computed once per step, and attention is a later phase.
        unsafe { self.kv.store(layer, (at.page, at.position % PAGE_TOKENS), head, k, v) };
    }

    fn attend(&self, member: &Member<'_>, layer: usize) -> Result<(), Stopped> {
        let &DecoderSpec { heads, kv_heads, head_dim, .. } = self.spec;
        let attention = Attention {
            kv: self.kv,
            layer,
            rope: self.rope,
            heads,
            kv_heads,
            head_dim,
            qkv: self.qkv,
            qkv_stride: self.widths.qkv,
            out: self.attended,
            out_stride: self.widths.attended,
        };
        // SAFETY: this member's own.
        let scratch = unsafe { &mut self.scratch.get_mut(member.index()).attention };
        member.each(self.attention_items.len() * kv_heads, |item| {
            let AttentionRows { segment, rows } = &self.attention_items[item / kv_heads];
            let segment = &self.batch.segments[*segment];
            self.isa.run(AttentionItem {
                attention: &attention,
                kv_head: item % kv_heads,
                pages: &self.batch.pages[segment.pages.clone()],
                first_row: segment.rows.start,
                first_position: segment.first_position,
                rows: rows.clone(),
                scratch,
            });
        })
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
