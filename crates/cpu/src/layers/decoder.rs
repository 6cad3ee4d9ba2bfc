//! The forward pass: all rows of a batch go through each layer together.

mod append;
mod gathered;
mod head_norm;
mod phases;
mod step;

use std::ops::Range;
use std::sync::Arc;

use baton_core::PageId;
use baton_fabric::{HostMemory, LayerCounter};
use baton_model::DecoderSpec;

use self::gathered::Gathered;
pub use self::phases::PhaseClock;
use self::step::Step;
use super::attention::{AttentionCut, BLOCK_TOKENS, BlockProducts};
use super::rope::RopeTable;
use crate::batch::Batch;
use crate::matmul::arithmetic::LeftOperand;
use crate::matmul::gemm::RowOwners;
use crate::matmul::multiply::Multiply;
use crate::matmul::quant::{QuantMatmul, TokenMatmuls};
use crate::memory::kv::{KeyScales, KvPool, KvShape};
use crate::memory::shared::Shared;
use crate::memory::workspace::Workspace;
use crate::options::WeightForm;
use crate::shards::Shards;
use crate::simd::isa::Isa;
use crate::threads::team::{Member, Team};
use crate::weights::{DecoderWeights, EmbeddingTable, Phase, Progress, Weights};
use baton_backend::BackendError;

/// Receives rows of logits, on any member and in any order.
pub(crate) trait LogitsSink: Sync {
    /// `wanted` is the [number](crate::batch::Wanted::number) of a row; each row is passed once.
    fn take(&self, wanted: usize, logits: &mut [f32], member: usize);
}

/// Receivers of a step's progress.
#[derive(Clone, Copy)]
pub(crate) struct Watchers<'a> {
    pub(crate) layers: Layers<'a>,
    pub(crate) clock: Option<&'a PhaseClock>,
}

/// How the layers of a forward pass are counted.
#[derive(Clone, Copy)]
pub(crate) enum Layers<'a> {
    /// Other rows of the step have yet to pass them.
    NotFinal(&'a LayerCounter),
    Final(&'a LayerCounter),
}

impl Layers<'_> {
    fn count_one(self) {
        match self {
            Self::NotFinal(counter) => counter.other_progress(),
            Self::Final(counter) => counter.layer_done(),
        }
    }
}

/// A loaded model, whatever its weights and KV are stored as.
pub(crate) trait Decode: Send {
    /// `quant_matmul` is how quantized weights are multiplied, except for logits.
    fn step(
        &mut self,
        batch: &Batch,
        quant_matmul: QuantMatmul,
        sink: &dyn LogitsSink,
        watchers: Watchers<'_>,
    ) -> Result<(), BackendError>;

    fn team(&self) -> &Team;

    /// The element types and the order of sums, as they appear in a `numerics_id`.
    fn numerics(&self, products: Option<TokenMatmuls>) -> String;

    /// How the quantized weights are multiplied, if there are any: as `wanted`, where their formats allow it.
    fn products(&self, wanted: TokenMatmuls) -> Option<TokenMatmuls>;

    /// The memory of the weights that a phase reads in all layers.
    fn weight_bytes(&self, phase: Phase) -> usize;

    fn kv_memory(&self) -> &Arc<HostMemory>;

    /// Bytes of activations that the other shards have read, by shard.
    fn gathered_bytes(&self) -> &[u64];

    /// A row of the residual stream after the last layer of the last step.
    fn hidden(&self, row: usize) -> &[f32];

    /// Appends a page in canonical order.
    fn export(&self, page: PageId, layers: Range<usize>, tokens: usize, bytes: &mut Vec<u8>);
}

/// A decoder with weights stored as `W` and KV as `K`.
pub(crate) struct Decoder<W: Multiply, K: BlockProducts> {
    isa: Isa,
    team: Team,
    spec: DecoderSpec,
    shards: Shards,
    gathered: Gathered,
    embedding: EmbeddingTable,
    weights: DecoderWeights<W>,
    rope: RopeTable,
    kv: KvPool<K>,
    key_scales: Option<KeyScales>,
    workspace: Workspace<W, K>,
    attention: AttentionCut,
}

pub(crate) struct DecoderSizes {
    pub(crate) pages: usize,
    pub(crate) context: usize,
    pub(crate) max_rows: usize,
    pub(crate) weights: WeightForm,
}

impl<W: Multiply, K: BlockProducts> Decoder<W, K> {
    pub(crate) fn load(
        source: &Arc<dyn Weights>,
        isa: Isa,
        shards: Shards,
        mut team: Team,
        sizes: &DecoderSizes,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Self, BackendError> {
        let spec = source.spec().clone();
        // Enough for one sequence of full length.
        let partial_slots = sizes.context.div_ceil(BLOCK_TOKENS);
        let shape = KvShape { layers: spec.layers, pages: sizes.pages, heads: spec.kv_heads, head_dim: spec.head_dim };
        Ok(Self {
            isa,
            embedding: EmbeddingTable::new(source)?,
            weights: DecoderWeights::load(
                &**source,
                shards,
                |bytes| sizes.weights.is_compact(bytes, isa),
                &mut team,
                progress,
            )?,
            rope: RopeTable::new(&spec.rope, spec.head_dim, sizes.context),
            kv: KvPool::new(shape, shards.count)?,
            key_scales: K::SCALES_KEYS.then(|| KeyScales::of(&**source)).transpose()?,
            workspace: Workspace::new(&spec, &shards, sizes.max_rows, partial_slots, team.size())?,
            attention: AttentionCut::new(&shards, K::BLOCK_ROWS, partial_slots),
            gathered: Gathered::new(&spec, &shards),
            shards,
            team,
            spec,
        })
    }
}

impl<W: Multiply, K: BlockProducts> Decode for Decoder<W, K> {
    fn step(
        &mut self,
        batch: &Batch,
        quant_matmul: QuantMatmul,
        sink: &dyn LogitsSink,
        watchers: Watchers<'_>,
    ) -> Result<(), BackendError> {
        let shard_members = self.team.size().div_ceil(self.shards.count);
        let rows = RowOwners::of::<W>(batch.rows.len(), self.spec.hidden, shard_members, self.shards.count);
        self.attention.cut(batch, shard_members, &rows);
        self.kv.memory().in_use(batch.pages.iter().map(|page| page.0 + 1).max().unwrap_or(0));
        let (workspace, rows) = (&mut self.workspace, batch.rows.len());
        let step = Step {
            isa: self.isa,
            members: self.team.size(),
            shard_members,
            spec: &self.spec,
            shards: self.shards,
            embedding: &self.embedding,
            weights: &self.weights,
            quant_matmul,
            rope: &self.rope,
            kv: &self.kv,
            key_scales: self.key_scales.as_ref(),
            batch,
            attention: &self.attention,
            partials: workspace.partials.share(),
            sink,
            layers: watchers.layers,
            clock: watchers.clock,
            widths: workspace.widths,
            hidden: Shared::new(workspace.hidden.as_mut_slice()),
            qkv: Shared::new(workspace.qkv.as_mut_slice()),
            attended: LeftOperand::new(Shared::new(workspace.attended.as_mut_slice()), rows, workspace.widths.attended),
            gated: LeftOperand::new(Shared::new(workspace.gated.as_mut_slice()), rows, workspace.widths.ffn),
            logits: Shared::new(workspace.logits.as_mut_slice()),
            logits_rows: workspace.logits_rows,
            scratch: Shared::new(&mut workspace.scratch),
        };
        self.team.run(&|member: &Member<'_>| step.run(member))?;
        self.gathered.count(batch.rows.len(), batch.wanted.len());
        Ok(())
    }

    fn team(&self) -> &Team {
        &self.team
    }

    fn numerics(&self, products: Option<TokenMatmuls>) -> String {
        let products = products.map_or("", TokenMatmuls::in_numerics_id);
        format!("{}-{}{products}{}", W::NAME, W::NUMERICS, K::NUMERICS)
    }

    fn products(&self, wanted: TokenMatmuls) -> Option<TokenMatmuls> {
        match self.weights.has_quantized_layers() {
            true => Some(wanted),
            // Logits take integers in any case.
            false => self.weights.has_quantized_head().then_some(TokenMatmuls::Integer),
        }
    }

    fn weight_bytes(&self, phase: Phase) -> usize {
        self.weights.bytes(phase)
    }

    fn kv_memory(&self) -> &Arc<HostMemory> {
        self.kv.memory()
    }

    fn gathered_bytes(&self) -> &[u64] {
        self.gathered.bytes()
    }

    fn hidden(&self, row: usize) -> &[f32] {
        &self.workspace.hidden.as_slice()[row * self.workspace.widths.hidden..][..self.spec.hidden]
    }

    fn export(&self, page: PageId, layers: Range<usize>, tokens: usize, bytes: &mut Vec<u8>) {
        // SAFETY: `&self`: no step runs.
        unsafe { self.kv.export(page, layers, tokens, bytes) };
    }
}
