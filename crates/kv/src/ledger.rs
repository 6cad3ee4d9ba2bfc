//! The one place where pages change hands. Pool and prefix cache are two views of the same holders, so neither is touched
//! without the other.

use std::collections::BTreeMap;
use std::sync::Arc;

use baton_core::{AdapterId, CacheEvent, CacheUpdate, Guarantee, PageId, ReservationId, TokenId};
use thiserror::Error;

use crate::audit::{self, Discrepancy};
use crate::dropped::Dropped;
use crate::pages_for;
use crate::pool::PagePool;
use crate::prefix::PrefixCache;
use crate::reservation::{CannotReserve, PageReservation, ReceivedPages, Reserved};
use crate::table::{Origin, PageTable, StepNumber};

/// All pages of one engine.
pub struct PageLedger {
    pool: PagePool,
    cache: Option<PrefixCache>,
    /// Those whose pages the fabric may write.
    reservations: BTreeMap<ReservationId, Reserved>,
    evicted_total: u64,
    /// All steps up to this one have ended.
    ended: StepNumber,
    dropped: Dropped,
}

/// Nothing has changed hands. Giving up a sequence may help, unless the pool is smaller than what was wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("{wanted} pages wanted, {available} free or cached")]
pub struct OutOfPages {
    pub wanted: usize,
    pub available: usize,
}

impl PageLedger {
    /// With a prefix cache if there is a guarantee of what it may share.
    pub fn new(pages_total: usize, prefix_cache: Option<Guarantee>) -> Self {
        Self {
            pool: PagePool::new(pages_total),
            cache: prefix_cache.map(|guarantee| PrefixCache::new(pages_total, guarantee)),
            reservations: BTreeMap::new(),
            evicted_total: 0,
            ended: StepNumber::default(),
            dropped: Dropped::default(),
        }
    }

    pub fn pages_total(&self) -> usize {
        self.pool.total()
    }

    pub fn pages_free(&mut self) -> usize {
        self.take_back();
        self.pool.free().len()
    }

    /// Held by the cache alone.
    pub fn pages_cached(&mut self) -> usize {
        self.take_back();
        self.cache.as_ref().map_or(0, PrefixCache::idle)
    }

    /// What [`grow`](Self::grow) can draw on.
    pub fn pages_available(&mut self) -> usize {
        self.pages_free() + self.pages_cached()
    }

    /// Own pages of reservations and of what was received.
    pub fn pages_reserved(&self) -> usize {
        self.dropped.left().reserved_pages
    }

    /// Those that may still be written, whether or not they are waited for.
    pub fn reservations(&self) -> usize {
        self.reservations.len()
    }

    pub fn evicted_total(&self) -> u64 {
        self.evicted_total
    }

    /// Without pages yet.
    pub fn empty_table(&self, origin: Origin) -> PageTable {
        PageTable::new(origin, self.dropped.clone())
    }

    /// Shares the longest cached prefix of a sequence in whole pages. The last token is never part of it: its logits are
    /// what the sequence needs.
    pub fn match_prefix(&mut self, tokens: &[TokenId], origin: Origin) -> PageTable {
        let mut table = self.empty_table(origin);
        if let (Some(cache), [matchable @ .., _]) = (&mut self.cache, tokens) {
            table.pages = cache.find(matchable, origin);
        }
        for &page in &table.pages {
            self.hold(page);
        }
        table
    }

    /// The pages of the longest cached prefix of `tokens`, without sharing them: for callers that only need the length.
    pub fn cached_prefix(&self, tokens: &[TokenId], adapter: Option<AdapterId>) -> Vec<PageId> {
        self.cache.as_ref().map_or_else(Vec::new, |cache| cache.path(tokens, adapter).collect())
    }

    /// Shares the first pages of another sequence. They must be whole: a page with two holders is never written.
    pub fn share_prefix(&mut self, donor: &PageTable, pages: usize) -> PageTable {
        let mut table = self.empty_table(donor.origin);
        table.pages.extend(donor.pages.iter().take(pages));
        for &page in &table.pages {
            self.hold(page);
        }
        table
    }

    /// Makes room for `tokens` tokens in all, evicting cached pages if need be. All or nothing.
    pub fn grow(&mut self, table: &mut PageTable, tokens: usize) -> Result<(), OutOfPages> {
        let wanted = pages_for(tokens).saturating_sub(table.pages.len());
        let available = self.pages_available();
        if wanted > available {
            return Err(OutOfPages { wanted, available });
        }
        let missing = wanted.saturating_sub(self.pages_free());
        if missing > 0 && self.evict(missing) < missing {
            return Err(OutOfPages { wanted, available: self.pages_free() });
        }
        table.pages.extend((0..wanted).map_while(|_| self.pool.take()));
        Ok(())
    }

    /// Sets pages aside for positions `[0, end)` of a prompt: the cached prefix is shared, the rest is new. At most half of
    /// all pages can be reserved, else engines that wait for each other's KV could fill each other up for good;
    /// `headroom` pages stay available.
    pub fn reserve(
        &mut self,
        id: ReservationId,
        prompt: Arc<[TokenId]>,
        adapter: Option<AdapterId>,
        end: usize,
        headroom: usize,
    ) -> Result<PageReservation, CannotReserve> {
        let origin = Origin { prompt_tokens: prompt.len(), adapter };
        // One token more than is wanted, since the last is never matched; the sequence's own last is not matched either.
        let mut table = self.match_prefix(&prompt[..prompt.len().min(end + 1)], origin);
        let shared = table.pages.len();
        self.reserve_rest(&mut table, end, headroom)?;
        let reserved = Reserved::new(prompt, table, shared, &self.dropped);
        let guard = reserved.guard(id, end, &self.dropped);
        self.reservations.insert(id, reserved);
        Ok(guard)
    }

    fn reserve_rest(&mut self, table: &mut PageTable, end: usize, headroom: usize) -> Result<(), CannotReserve> {
        let wanted = pages_for(end) - table.pages.len();
        let (reserved, limit) = (self.pages_reserved(), self.pages_total() / 2);
        if reserved + wanted > limit {
            return Err(CannotReserve::TooMuchReserved { wanted, reserved, limit });
        }
        let available = self.pages_available();
        if wanted + headroom > available {
            return Err(OutOfPages { wanted: wanted + headroom, available }.into());
        }
        Ok(self.grow(table, end)?)
    }

    /// The pages that are the fabric's to write.
    pub fn own_pages(&self, reservation: &PageReservation) -> &[PageId] {
        self.reservations.get(&reservation.id()).map_or(&[], Reserved::own_pages)
    }

    /// A reservation that was dropped, each once: the writer of its pages must be stopped, and then
    /// [`revoked`](Self::revoked) be called.
    pub fn next_dropped(&mut self) -> Option<ReservationId> {
        self.dropped.left().reservations.pop_front()
    }

    /// The reservation's pages are not written from now on; `verified_tokens` of its prompt were verified.
    pub fn revoked(&mut self, id: ReservationId, verified_tokens: usize) -> Option<ReceivedPages> {
        Some(self.reservations.remove(&id)?.received(verified_tokens))
    }

    /// Offers the computed whole pages of a sequence to the cache, which takes those that may be shared; the table keeps
    /// holding them. `tokens` are those whose KV is computed.
    pub fn insert(&mut self, tokens: &[TokenId], table: &PageTable) {
        if let Some(cache) = &mut self.cache {
            cache.insert(tokens, table, &mut self.pool);
        }
    }

    /// Whatever is cached of `tokens` from page `from` on, and below it, will not be matched again.
    pub fn forget(&mut self, tokens: &[TokenId], adapter: Option<AdapterId>, from: usize) -> usize {
        self.take_back();
        let Some(cache) = &mut self.cache else { return 0 };
        let doubted = cache.path(tokens, adapter).nth(from);
        doubted.map_or(0, |page| cache.forget(page, &mut self.pool))
    }

    /// Everything that can be matched. What changes from now on is recorded.
    pub fn cache_snapshot(&mut self) -> Vec<CacheEvent> {
        self.cache.as_mut().map_or_else(|| vec![CacheEvent::Reset], PrefixCache::snapshot)
    }

    /// What has changed since this was called last; `None` while nothing is recorded. There is a bound: the number of the
    /// first event is how many before it were lost.
    pub fn take_cache_changes(&mut self) -> Option<CacheUpdate> {
        self.cache.as_mut()?.take_changes()
    }

    pub fn stop_recording_cache(&mut self) {
        if let Some(cache) = &mut self.cache {
            cache.stop_recording();
        }
    }

    /// This step has ended, and all before it: takes back what dropped tables hold and no later step touches.
    pub fn collect(&mut self, ended: StepNumber) {
        self.ended = ended;
        self.take_back();
    }

    fn take_back(&mut self) {
        for table in self.dropped.take_tables(self.ended) {
            self.let_go(table.pages);
        }
    }

    fn let_go(&mut self, pages: Vec<PageId>) {
        // Last page first: the next sequence takes the pages of a dropped table in their old order.
        for page in pages.into_iter().rev() {
            let holders = self.pool.let_go(page);
            if let Some(cache) = self.cache.as_mut().filter(|cache| holders == 1 && cache.contains(page)) {
                cache.mark_idle(page);
            }
        }
    }

    /// Frees up to `count` cached pages, least recently used first; returns how many.
    pub fn evict(&mut self, count: usize) -> usize {
        self.take_back();
        let evicted = self.cache.as_mut().map_or(0, |cache| cache.evict(count, &mut self.pool));
        self.evicted_total += evicted as u64;
        evicted
    }

    /// Recounts every holder from scratch. `tables` and `received` are all that exist outside of the ledger.
    pub fn audit<'a>(
        &self,
        tables: impl IntoIterator<Item = &'a PageTable>,
        received: impl IntoIterator<Item = &'a ReceivedPages>,
    ) -> Result<(), Discrepancy> {
        let received: Vec<_> = received.into_iter().collect();
        let own_pages = self.reservations.values().map(Reserved::own_pages);
        let counted = own_pages.chain(received.iter().map(|pages| pages.own_pages())).map(<[_]>::len).sum();
        let left = self.dropped.left();
        if counted != left.reserved_pages {
            return Err(Discrepancy::Reserved { recorded: left.reserved_pages, counted });
        }
        let tables = tables.into_iter().chain(received.into_iter().map(ReceivedPages::table));
        let held = tables.flat_map(PageTable::pages).copied();
        let reserved = self.reservations.values().flat_map(|reserved| reserved.table.pages()).copied();
        let dropped = left.tables.iter().flat_map(|table| &table.pages).copied();
        audit::recount(&self.pool, self.cache.as_ref(), held.chain(reserved).chain(dropped))
    }

    fn hold(&mut self, page: PageId) {
        let holders = self.pool.hold(page);
        if let Some(cache) = self.cache.as_mut().filter(|cache| holders == 2 && cache.contains(page)) {
            cache.mark_used(page);
        }
    }
}
