//! Rotates K of a step's tokens and stores K and V in their pages.

use baton_core::PAGE_TOKENS;

use crate::batch::Row;
use crate::layers::rope::RopeTable;
use crate::memory::kv::{KvElement, KvShard, apply_scales};
use crate::memory::shared::Shared;
use crate::shards::Shards;
use crate::simd::vector::{Kernel, Lanes};

/// Some rows of one shard.
pub(super) struct Append<'a, E> {
    pub(super) kv: KvShard<'a, E>,
    pub(super) layer: usize,
    /// Factors for the shard's KV heads, where keys are scaled.
    pub(super) key_scales: Option<&'a [f32]>,
    pub(super) rope: &'a RopeTable,
    pub(super) shards: Shards,
    pub(super) at: &'a [Row],
    /// Heads of q, then k, then v; not written in this phase.
    pub(super) qkv: Shared<'a, f32>,
    /// The index of the shard's part of the first row.
    pub(super) first: usize,
    pub(super) stride: usize,
    /// Buffer for one rotated head.
    pub(super) turned: &'a mut [f32],
}

impl<E: KvElement> Kernel for Append<'_, E> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self) {
        let Shards { heads, kv_heads, head_dim, .. } = self.shards;
        for (i, at) in self.at.iter().enumerate() {
            let keys = self.first + i * self.stride + heads * head_dim;
            for head in 0..kv_heads {
                let (k, v) = (keys + head * head_dim, keys + (kv_heads + head) * head_dim);
                // SAFETY: no thread writes them in this phase.
                let (k, v) = unsafe { (self.qkv.slice(k..k + head_dim), self.qkv.slice(v..v + head_dim)) };
                self.rope.rotate::<L>(at.position, k, self.turned);
                if let Some(scales) = self.key_scales {
                    apply_scales(self.turned, &scales[head * head_dim..]);
                }
                let place = (at.page, at.position % PAGE_TOKENS);
                // SAFETY: a position of a sequence is computed once per step, and attention is a later phase.
                unsafe { self.kv.store::<L>(self.layer, place, head, self.turned, v) };
            }
        }
    }
}
