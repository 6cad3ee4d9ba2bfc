//! The pages there are, and how many holders each has.

use baton_core::PageId;

pub(crate) struct PagePool {
    /// Holders by page: tables, plus one when the prefix cache has it.
    holders: Vec<u32>,
    /// Pages without a holder; the last is taken next.
    free: Vec<PageId>,
}

impl PagePool {
    pub(crate) fn new(pages_total: usize) -> Self {
        Self { holders: vec![0; pages_total], free: (0..pages_total as u32).rev().map(PageId).collect() }
    }

    pub(crate) fn total(&self) -> usize {
        self.holders.len()
    }

    pub(crate) fn free(&self) -> &[PageId] {
        &self.free
    }

    pub(crate) fn holders(&self, page: PageId) -> u32 {
        self.holders[page.index()]
    }

    /// A page with one holder.
    pub(crate) fn take(&mut self) -> Option<PageId> {
        let page = self.free.pop()?;
        self.holders[page.index()] = 1;
        Some(page)
    }

    /// One more holder of a page that has some.
    pub(crate) fn hold(&mut self, page: PageId) -> u32 {
        let holders = &mut self.holders[page.index()];
        debug_assert!(*holders > 0, "page {page} is free and cannot be shared");
        *holders += 1;
        *holders
    }

    /// One holder less; without any the page is free.
    pub(crate) fn let_go(&mut self, page: PageId) -> u32 {
        let holders = &mut self.holders[page.index()];
        debug_assert!(*holders > 0, "page {page} is free already");
        *holders -= 1;
        if *holders == 0 {
            self.free.push(page);
        }
        self.holders[page.index()]
    }
}
