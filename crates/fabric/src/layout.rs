//! Where a token's keys and values lie. The same description serves the pool that computes on them and the wire.
//!
//! ```text
//!   shard s (heads h0..h1):  [layer][page][K | V][head][ 32 tokens × head_dim, as `PageOrder` has them ]
//!                                   └── one block: the unit that is offered, pulled and checksummed ──┘
//! ```

use std::ops::Range;

use baton_core::{PAGE_TOKENS, PageId};
use serde::{Deserialize, Serialize};

/// How elements are ordered inside one head of one page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum PageOrder {
    /// bf16, two rows interleaved: K as `[head_dim / 2][32][2]`, V as `[16][head_dim][2]`.
    InterleavedBf16,
    /// f32: K as `[head_dim][32]`, V as `[32][head_dim]`.
    PlainF32,
    /// int8, the same two rows interleaved by 16 columns: K as `[head_dim / 2][32 / 16][2][16]`, V as
    /// `[16][head_dim / 16][2][16]`; behind them a scale in f32 for each of the 32 tokens.
    InterleavedInt8,
}

impl PageOrder {
    fn element_bytes(self) -> usize {
        match self {
            Self::InterleavedInt8 => 1,
            Self::InterleavedBf16 => 2,
            Self::PlainF32 => 4,
        }
    }

    /// Of one token, beside its elements.
    fn scale_bytes(self) -> usize {
        match self {
            Self::InterleavedInt8 => size_of::<f32>(),
            Self::InterleavedBf16 | Self::PlainF32 => 0,
        }
    }
}

/// The KV of a model, however many shards hold it. Two engines can hand over to each other when theirs are equal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KvLayout {
    pub order: PageOrder,
    pub layers: u32,
    pub kv_heads: u32,
    pub head_dim: u32,
}

impl KvLayout {
    /// Keys or values of one head of one page.
    pub fn head_bytes(&self) -> usize {
        PAGE_TOKENS * (self.head_dim as usize * self.order.element_bytes() + self.order.scale_bytes())
    }

    /// One page of all layers and heads; the largest number there is for more than that.
    pub fn page_bytes(&self) -> usize {
        let heads = (2 * self.layers as usize).saturating_mul(self.kv_heads as usize);
        heads.saturating_mul(self.head_bytes())
    }

    /// One layer of a page, all heads.
    pub fn block_bytes(&self) -> usize {
        self.page_bytes() / self.layers.max(1) as usize
    }

    /// The heads of shard `index` of `shards`; `None` unless one number divides the other. With more shards than heads
    /// neighbouring shards hold the same one:
    ///
    /// ```text
    ///   4 heads, 2 shards   0 1 | 2 3
    ///   2 heads, 4 shards   0 | 0 | 1 | 1
    /// ```
    pub fn heads_of_shard(&self, shards: u32, index: u32) -> Option<Range<u32>> {
        let heads = self.kv_heads;
        if shards == 0 || heads == 0 || index >= shards {
            None
        } else if heads.is_multiple_of(shards) {
            let each = heads / shards;
            Some(index * each..(index + 1) * each)
        } else if shards.is_multiple_of(heads) {
            let head = index / (shards / heads);
            Some(head..head + 1)
        } else {
            None
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Half {
    Keys,
    Values,
}

/// The part of every page that one shard holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShardLayout {
    pub kv: KvLayout,
    pub heads: Range<u32>,
    pub pages: u32,
}

impl ShardLayout {
    pub fn bytes(&self) -> usize {
        self.kv.layers as usize * self.pages as usize * self.block_bytes()
    }

    /// One page of one layer: keys of all heads here, then values.
    pub fn block_bytes(&self) -> usize {
        2 * self.half_bytes()
    }

    fn half_bytes(&self) -> usize {
        self.heads.len() * self.kv.head_bytes()
    }

    /// Offset of one page of one layer.
    pub fn block_at(&self, layer: u32, page: PageId) -> usize {
        (layer as usize * self.pages as usize + page.index()) * self.block_bytes()
    }

    /// Offset of one head (numbered over the whole model) inside a block.
    pub fn head_in_block(&self, half: Half, head: u32) -> usize {
        let side = match half {
            Half::Keys => 0,
            Half::Values => self.half_bytes(),
        };
        side + (head - self.heads.start) as usize * self.kv.head_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shards_share_heads_out_or_share_one() {
        let heads = |kv_heads, shards: u32| {
            let kv = KvLayout { order: PageOrder::InterleavedBf16, layers: 1, kv_heads, head_dim: 8 };
            (0..shards).map(|index| kv.heads_of_shard(shards, index)).collect::<Option<Vec<_>>>()
        };
        assert_eq!(heads(4, 1).map(|shards| shards[0].clone()), Some(0..4));
        assert_eq!(heads(4, 2), Some(vec![0..2, 2..4]));
        assert_eq!(heads(2, 4), Some(vec![0..1, 0..1, 1..2, 1..2]));
        assert_eq!(heads(1, 3), Some(vec![0..1, 0..1, 0..1]));
        assert_eq!((heads(2, 3), heads(6, 4), heads(0, 1)), (None, None, None));
    }

    #[test]
    fn blocks_tile_the_shard() {
        let kv = KvLayout { order: PageOrder::InterleavedBf16, layers: 2, kv_heads: 4, head_dim: 8 };
        let shard = ShardLayout { kv: kv.clone(), heads: 2..4, pages: 3 };
        assert_eq!(kv.head_bytes(), 32 * 8 * 2);
        assert_eq!(shard.block_bytes(), 2 * 2 * 512);
        assert_eq!(shard.bytes() * 2, kv.page_bytes() * 3);
        assert_eq!(shard.block_at(1, PageId(2)) + shard.block_bytes(), shard.bytes());
        assert_eq!(shard.head_in_block(Half::Keys, 2), 0);
        assert_eq!(shard.head_in_block(Half::Values, 3) + kv.head_bytes(), shard.block_bytes());
    }

    #[test]
    fn int8_has_scales_beside_it() {
        let bytes = |order| KvLayout { order, layers: 2, kv_heads: 4, head_dim: 64 }.page_bytes();
        assert_eq!(bytes(PageOrder::PlainF32), 2 * 2 * 4 * 32 * 64 * 4);
        assert_eq!(bytes(PageOrder::InterleavedBf16), 2 * 2 * 4 * 32 * 64 * 2);
        assert_eq!(bytes(PageOrder::InterleavedInt8), 2 * 2 * 4 * 32 * (64 + 4));
        let most = u32::MAX;
        let absurd = KvLayout { order: PageOrder::PlainF32, layers: most, kv_heads: most, head_dim: most };
        assert_eq!(absurd.page_bytes(), usize::MAX);
    }
}
