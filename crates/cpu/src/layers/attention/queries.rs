//! The query rows of an item.

use baton_core::PageId;

use super::cut::ItemRows;
use super::{Attention, BlockProducts};
use crate::simd::vector::{LANES, Lanes};

/// The query rows of an item, and the pages of their sequence.
pub(super) struct Queries<'a, E: BlockProducts> {
    pub(super) attention: &'a Attention<'a, E>,
    pub(super) kv_head: usize,
    pub(super) pages: &'a [PageId],
    /// The segment's first row in the batch, and its position.
    pub(super) first_row: usize,
    pub(super) first_position: usize,
    /// The number of tokens that the sequence has in its pages, including those of this step.
    pub(super) written: usize,
    /// Query heads per KV head.
    pub(super) group: usize,
    pub(super) item: &'a ItemRows,
}

impl<E: BlockProducts> Queries<'_, E> {
    #[inline(always)]
    pub(super) fn rows(&self) -> usize {
        self.item.rows.len()
    }

    #[inline(always)]
    pub(super) fn each(&self) -> EachQuery {
        let &Attention { qkv_stride, qkv_first, .. } = self.attention;
        let (head_dim, group) = (self.attention.head_dim(), self.group);
        let (token, head) = (self.item.rows.start / group, self.item.rows.start % group);
        let first_head = self.kv_head * group;
        EachQuery {
            next: Query {
                row: 0,
                token,
                head: first_head + head,
                at: (self.first_row + token) * qkv_stride + qkv_first + (first_head + head) * head_dim,
            },
            rows: self.rows(),
            head_end: first_head + group,
            group,
            head_dim,
            to_next_token: qkv_stride - group * head_dim,
        }
    }
}

/// One row of an item.
#[derive(Clone, Copy)]
pub(super) struct Query {
    pub(super) row: usize,
    /// Its index in the segment.
    pub(super) token: usize,
    /// The query head's number in the shard.
    pub(super) head: usize,
    /// Its index in the rows of q, k and v.
    pub(super) at: usize,
}

/// Iterates over rows by counting, since divisions take long.
pub(super) struct EachQuery {
    next: Query,
    rows: usize,
    /// The head after the last one of the KV head's group.
    head_end: usize,
    group: usize,
    head_dim: usize,
    to_next_token: usize,
}

impl Iterator for EachQuery {
    type Item = Query;

    #[inline(always)]
    fn next(&mut self) -> Option<Query> {
        let now = self.next;
        let Query { row, token, head, at } = &mut self.next;
        *row += 1;
        *head += 1;
        *at += self.head_dim;
        if *head == self.head_end {
            *head -= self.group;
            *token += 1;
            *at += self.to_next_token;
        }
        (now.row < self.rows).then_some(now)
    }
}

/// Prefetches the queries of the next item, which another member may have written.
pub(super) struct NextQueries {
    each: EachQuery,
    of: *const f32,
}

impl NextQueries {
    pub(super) fn new<E: BlockProducts>(queries: &Queries<'_, E>) -> Self {
        Self { each: queries.each(), of: queries.attention.qkv.as_ptr() }
    }

    /// Prefetches a few rows: many at once would delay other loads.
    #[inline(always)]
    pub(super) fn prefetch<L: Lanes>(&mut self, rows: usize) {
        for _ in 0..rows {
            let Some(query) = self.each.next() else { return };
            for i in (0..self.each.head_dim).step_by(LANES) {
                L::prefetch_second_level(self.of.wrapping_add(query.at + i).cast());
            }
        }
    }
}
