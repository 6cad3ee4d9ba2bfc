//! What each tensor-parallel shard of a model owns: heads of attention, and output columns of everything else. No sum is
//! ever split, so the number of shards cannot show in a result.
//!
//! ```text
//!   8 query heads, 2 KV heads     1 shard    q 0…7           kv 0 1
//!                                 2 shards   q 0…3 | 4…7     kv 0 | 1
//!                                 4 shards   q 0 1 | 2 3 …   kv 0 | 0 | 1 | 1      KV heads are computed more than once
//! ```

use std::ops::Range;

use baton_model::DecoderSpec;

use crate::simd::vector::LANES;
use baton_backend::BackendError;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Shards {
    pub(crate) count: usize,
    /// Query heads of each shard.
    pub(crate) heads: usize,
    /// KV heads of each shard.
    pub(crate) kv_heads: usize,
    pub(crate) head_dim: usize,
    /// KV heads of the whole model.
    all_kv_heads: usize,
}

/// How the output rows of a weight matrix are divided among shards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Deal {
    QueryHeads,
    KvHeads,
    /// In panels of 16, as evenly as they go.
    Panels,
}

impl Shards {
    pub(crate) fn new(spec: &DecoderSpec, count: usize) -> Result<Self, BackendError> {
        spec.check_tp(count).map_err(|error| BackendError::Load(error.to_string()))?;
        Ok(Self {
            count,
            heads: spec.heads / count,
            kv_heads: (spec.kv_heads / count).max(1),
            head_dim: spec.head_dim,
            all_kv_heads: spec.kv_heads,
        })
    }

    /// Query heads per KV head.
    pub(crate) fn group(&self) -> usize {
        self.heads / self.kv_heads
    }

    pub(crate) fn first_head(&self, shard: usize) -> usize {
        shard * self.heads
    }

    /// Rows of k and of v that belong to `shard`.
    pub(crate) fn kv_rows(&self, shard: usize) -> Range<usize> {
        let first = shard * self.all_kv_heads / self.count;
        first * self.head_dim..(first + self.kv_heads) * self.head_dim
    }

    /// The rows of a matrix of `rows` output rows that belong to `shard`.
    pub(crate) fn rows(&self, deal: Deal, rows: usize, shard: usize) -> Range<usize> {
        match deal {
            Deal::QueryHeads => self.first_head(shard) * self.head_dim..self.first_head(shard + 1) * self.head_dim,
            Deal::KvHeads => self.kv_rows(shard),
            Deal::Panels => {
                let first = |shard: usize| rows.min(rows.div_ceil(LANES) * shard / self.count * LANES);
                first(shard)..first(shard + 1)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use baton_model::Dtype;

    use super::super::tests::tiny::odd_spec;
    use super::*;

    fn rows(deal: Deal, rows: usize, heads: (usize, usize), count: usize) -> Vec<Range<usize>> {
        let spec = DecoderSpec { heads: heads.0, kv_heads: heads.1, head_dim: 10, ..odd_spec(Dtype::F32) };
        let shards = Shards::new(&spec, count).unwrap();
        (0..count).map(|shard| shards.rows(deal, rows, shard)).collect()
    }

    #[test]
    fn heads_and_panels_are_dealt_out() {
        assert_eq!(rows(Deal::QueryHeads, 80, (8, 2), 2), [0..40, 40..80]);
        assert_eq!(rows(Deal::KvHeads, 20, (8, 2), 2), [0..10, 10..20]);
        assert_eq!(rows(Deal::KvHeads, 40, (8, 4), 2), [0..20, 20..40]);
        assert_eq!(rows(Deal::KvHeads, 20, (8, 2), 4), [0..10, 0..10, 10..20, 10..20]);
        assert_eq!(rows(Deal::Panels, 37, (8, 2), 2), [0..16, 16..37]);
        assert_eq!(rows(Deal::Panels, 37, (8, 2), 4), [0..0, 0..16, 16..32, 32..37]);
    }

    #[test]
    fn heads_that_do_not_divide_are_refused() {
        for (heads, count, message) in
            [((6, 2), 4, "6 query heads"), ((6, 2), 3, "2 KV heads"), ((6, 2), 0, "0 shards")]
        {
            let spec = DecoderSpec { heads: heads.0, kv_heads: heads.1, ..odd_spec(Dtype::F32) };
            let error = Shards::new(&spec, count).unwrap_err().to_string();
            assert!(error.contains(message), "{error}");
        }
    }
}
