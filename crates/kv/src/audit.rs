//! Recounts every reference to every page. A wrong count is how KV of one sequence ends up under another.

use baton_core::PageId;
use thiserror::Error;

use crate::pool::PagePool;
use crate::prefix::PrefixCache;

/// The books do not agree: an engine that sees one must not serve another token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Discrepancy {
    #[error("page {page} has {recorded} holders on record, {counted} were found")]
    Holders { page: PageId, recorded: u32, counted: u32 },
    #[error("page {page} with {holders} holders is {listed} times in the free list")]
    FreeList { page: PageId, holders: u32, listed: u32 },
    #[error("{recorded} pages are reserved on record, {counted} were found")]
    Reserved { recorded: usize, counted: usize },
    #[error("the prefix cache contradicts itself at page {page}")]
    CachedPage { page: PageId },
    #[error("the prefix cache's totals are not the sums of its pages")]
    CacheTotals,
}

pub(crate) fn recount(
    pool: &PagePool,
    cache: Option<&PrefixCache>,
    held: impl IntoIterator<Item = PageId>,
) -> Result<(), Discrepancy> {
    let mut counted = vec![0_u32; pool.total()];
    for page in held {
        counted[page.index()] += 1;
    }
    let mut listed = vec![0_u32; pool.total()];
    for page in pool.free() {
        listed[page.index()] += 1;
    }
    for page in (0..pool.total() as u32).map(PageId) {
        let holders = pool.holders(page);
        let counted = counted[page.index()] + u32::from(cache.is_some_and(|cache| cache.contains(page)));
        if counted != holders {
            return Err(Discrepancy::Holders { page, recorded: holders, counted });
        }
        let listed = listed[page.index()];
        if listed != u32::from(holders == 0) {
            return Err(Discrepancy::FreeList { page, holders, listed });
        }
    }
    cache.map_or(Ok(()), |cache| cache.audit(pool))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_a_page_without_a_holder() {
        let mut pool = PagePool::new(2);
        let page = pool.take().unwrap();
        assert_eq!(recount(&pool, None, []), Err(Discrepancy::Holders { page, recorded: 1, counted: 0 }));
    }

    #[test]
    fn finds_a_page_that_is_free_and_held() {
        let mut pool = PagePool::new(2);
        let page = pool.take().unwrap();
        assert_eq!(recount(&pool, None, [page]), Ok(()));
        pool.let_go(page);
        assert_eq!(recount(&pool, None, [page]), Err(Discrepancy::Holders { page, recorded: 0, counted: 1 }));
    }
}
