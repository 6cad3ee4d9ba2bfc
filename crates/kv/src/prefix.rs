//! The prefix cache: a radix tree per adapter, whose edges are whole pages of tokens. A path from the root spells a token
//! sequence, its nodes name the pages that hold the KV of it.
//!
//! Only leaves that no sequence uses can be evicted, least recently used first; evicting one may make its parent a leaf.
//!
//! What is stored and removed can be recorded, by hashes. Without that it costs nothing.

use std::collections::{BTreeMap, BTreeSet};

use baton_core::{
    AdapterId, BlockHash, CacheEvent, CacheLog, CacheUpdate, Guarantee, PAGE_TOKENS, PageId, TokenId, cache_snapshot,
};

use crate::audit::Discrepancy;
use crate::pool::PagePool;
use crate::table::{Origin, PageTable};

type PageKey = [TokenId; PAGE_TOKENS];

pub(crate) struct PrefixCache {
    guarantee: Guarantee,
    /// By page: a page is cached at most once, so its id names its node.
    nodes: Vec<Node>,
    /// First pages by adapter: ascending by key, like every list of children, and never empty.
    roots: BTreeMap<Option<AdapterId>, Vec<PageId>>,
    /// Leaves held by the cache alone, by last use.
    evictable: BTreeSet<(u64, PageId)>,
    cached: usize,
    idle: usize,
    /// Counts uses; stands for time.
    clock: u64,
    /// Changes that were not taken yet, while they are recorded.
    log: Option<CacheLog>,
}

#[derive(Clone)]
struct Node {
    key: PageKey,
    /// Kept while changes are recorded.
    hash: BlockHash,
    parent: Parent,
    children: Vec<PageId>,
    last_use: u64,
    state: NodeState,
}

/// What stands before a page.
#[derive(Clone, Copy)]
enum Parent {
    Root(Option<AdapterId>),
    Page(PageId),
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum NodeState {
    /// The page is not cached.
    Absent,
    /// Tables hold the page too.
    Used,
    /// The cache is its only holder.
    Idle,
}

impl PrefixCache {
    pub(crate) fn new(pages_total: usize, guarantee: Guarantee) -> Self {
        let absent = Node {
            key: [TokenId(0); PAGE_TOKENS],
            hash: BlockHash::default(),
            parent: Parent::Root(None),
            children: Vec::new(),
            last_use: 0,
            state: NodeState::Absent,
        };
        Self {
            guarantee,
            nodes: vec![absent; pages_total],
            roots: BTreeMap::new(),
            evictable: BTreeSet::new(),
            cached: 0,
            idle: 0,
            clock: 0,
            log: None,
        }
    }

    /// Cached pages that no table holds. All of them can be evicted unless a table holds one further down, which only
    /// happens below a page that two sequences computed at the same time.
    pub(crate) fn idle(&self) -> usize {
        self.idle
    }

    pub(crate) fn contains(&self, page: PageId) -> bool {
        self.nodes[page.index()].state != NodeState::Absent
    }

    /// The pages of the longest cached prefix of `tokens`.
    pub(crate) fn path(&self, tokens: &[TokenId], adapter: Option<AdapterId>) -> impl Iterator<Item = PageId> {
        tokens.as_chunks().0.iter().scan(Parent::Root(adapter), |parent, key| {
            let at = self.position(*parent, key).ok()?;
            let page = self.children(*parent)[at];
            *parent = Parent::Page(page);
            Some(page)
        })
    }

    /// Of a sequence's tokens those whose KV can be another sequence's too.
    fn sharable<'a>(&self, tokens: &'a [TokenId], origin: Origin) -> &'a [TokenId] {
        match self.guarantee {
            Guarantee::ByToken => tokens,
            Guarantee::ByOrigin => &tokens[..tokens.len().min(origin.prompt_tokens)],
        }
    }

    /// What a sequence can share of the longest cached prefix of its tokens. Marks it as used now.
    pub(crate) fn find(&mut self, tokens: &[TokenId], origin: Origin) -> Vec<PageId> {
        self.clock += 1;
        let pages: Vec<_> = self.path(self.sharable(tokens, origin), origin.adapter).collect();
        for &page in &pages {
            self.touch(page);
        }
        pages
    }

    /// Caches what can be shared of `tokens`, whose KV is in the pages of `table`, in whole pages. A prefix that is cached
    /// already stays as it is: the other copy remains with its sequence and is freed with it.
    pub(crate) fn insert(&mut self, tokens: &[TokenId], table: &PageTable, pool: &mut PagePool) {
        self.clock += 1;
        let mut parent = Parent::Root(table.origin.adapter);
        let tokens = self.sharable(tokens, table.origin);
        for (key, &page) in tokens.as_chunks().0.iter().zip(&table.pages) {
            let node = match self.position(parent, key) {
                Ok(at) => self.children(parent)[at],
                Err(at) => {
                    self.attach(parent, at, key, page);
                    self.record_stored(page, table.origin.adapter);
                    pool.hold(page);
                    page
                }
            };
            self.touch(node);
            parent = Parent::Page(node);
        }
    }

    /// All that is cached. Changes are recorded from now on.
    pub(crate) fn snapshot(&mut self) -> Vec<CacheEvent> {
        let pages = self.top_down();
        if self.log.is_none() {
            for &(adapter, page) in &pages {
                self.nodes[page.index()].hash = self.hash(page, adapter);
            }
            self.log = Some(CacheLog::default());
        }
        cache_snapshot(pages.into_iter().map(|(_, page)| (self.parent_hash(page), self.nodes[page.index()].hash)))
    }

    pub(crate) fn stop_recording(&mut self) {
        self.log = None;
    }

    /// What was stored and removed since the last call, if it is recorded. The first one's number counts what was lost.
    pub(crate) fn take_changes(&mut self) -> Option<CacheUpdate> {
        self.log.as_mut().map(|log| std::mem::take(log).take())
    }

    /// Gives up to `count` pages back to the pool; returns how many it could.
    pub(crate) fn evict(&mut self, count: usize, pool: &mut PagePool) -> usize {
        for evicted in 0..count {
            let Some((_, page)) = self.evictable.pop_first() else { return evicted };
            self.detach(page);
            pool.let_go(page);
        }
        count
    }

    /// Drops `page` and all that is cached below it; tables that hold any of them keep it. Returns how many were dropped.
    pub(crate) fn forget(&mut self, page: PageId, pool: &mut PagePool) -> usize {
        let mut doomed = vec![page];
        let mut next = 0;
        while let Some(&page) = doomed.get(next) {
            doomed.extend_from_slice(&self.nodes[page.index()].children);
            next += 1;
        }
        // Children come after their parents: backwards, every one is a leaf when its turn comes.
        for &page in doomed.iter().rev() {
            let node = &self.nodes[page.index()];
            self.evictable.remove(&(node.last_use, page));
            self.detach(page);
            pool.let_go(page);
        }
        doomed.len()
    }

    /// The first table took this cached page.
    pub(crate) fn mark_used(&mut self, page: PageId) {
        let node = &mut self.nodes[page.index()];
        node.state = NodeState::Used;
        self.idle -= 1;
        self.evictable.remove(&(node.last_use, page));
    }

    /// The last table let go of this cached page.
    pub(crate) fn mark_idle(&mut self, page: PageId) {
        let node = &mut self.nodes[page.index()];
        node.state = NodeState::Idle;
        self.idle += 1;
        if node.children.is_empty() {
            self.evictable.insert((node.last_use, page));
        }
    }

    fn touch(&mut self, page: PageId) {
        let node = &mut self.nodes[page.index()];
        let listed = self.evictable.remove(&(node.last_use, page));
        node.last_use = self.clock;
        if listed {
            self.evictable.insert((node.last_use, page));
        }
    }

    fn attach(&mut self, parent: Parent, at: usize, key: &PageKey, page: PageId) {
        debug_assert!(!self.contains(page), "page {page} is cached under another prefix");
        self.children_mut(parent).insert(at, page);
        if let Parent::Page(parent) = parent {
            self.evictable.remove(&(self.nodes[parent.index()].last_use, parent));
        }
        let node = &mut self.nodes[page.index()];
        node.key = *key;
        node.parent = parent;
        node.state = NodeState::Used;
        self.cached += 1;
    }

    fn detach(&mut self, leaf: PageId) {
        let node = &mut self.nodes[leaf.index()];
        self.idle -= usize::from(node.state == NodeState::Idle);
        node.state = NodeState::Absent;
        let (parent, key) = (node.parent, node.key);
        if let Some(log) = &mut self.log {
            log.removed(node.hash);
        }
        if let Ok(at) = self.position(parent, &key) {
            self.children_mut(parent).remove(at);
        }
        self.cached -= 1;
        if !self.children(parent).is_empty() {
            return;
        }
        match parent {
            Parent::Root(adapter) => drop(self.roots.remove(&adapter)),
            Parent::Page(page) => {
                let node = &self.nodes[page.index()];
                if node.state == NodeState::Idle {
                    self.evictable.insert((node.last_use, page));
                }
            }
        }
    }

    fn record_stored(&mut self, page: PageId, adapter: Option<AdapterId>) {
        if self.log.is_none() {
            return;
        }
        let (parent, hash) = (self.parent_hash(page), self.hash(page, adapter));
        self.nodes[page.index()].hash = hash;
        if let Some(log) = &mut self.log {
            log.stored(parent, hash);
        }
    }

    /// The parent's must be known.
    fn hash(&self, page: PageId, adapter: Option<AdapterId>) -> BlockHash {
        BlockHash::of(self.parent_hash(page), adapter, &self.nodes[page.index()].key)
    }

    fn parent_hash(&self, page: PageId) -> Option<BlockHash> {
        match self.nodes[page.index()].parent {
            Parent::Page(parent) => Some(self.nodes[parent.index()].hash),
            Parent::Root(_) => None,
        }
    }

    /// All cached pages with their adapters, parents before children.
    fn top_down(&self) -> Vec<(Option<AdapterId>, PageId)> {
        let mut ordered = Vec::with_capacity(self.cached);
        let mut ahead: Vec<PageId> = Vec::new();
        for (&adapter, first) in &self.roots {
            ahead.extend(first.iter().rev().copied());
            while let Some(page) = ahead.pop() {
                ordered.push((adapter, page));
                ahead.extend(self.nodes[page.index()].children.iter().rev().copied());
            }
        }
        ordered
    }

    fn children(&self, parent: Parent) -> &[PageId] {
        match parent {
            Parent::Page(page) => &self.nodes[page.index()].children,
            Parent::Root(adapter) => self.roots.get(&adapter).map_or(&[], Vec::as_slice),
        }
    }

    fn children_mut(&mut self, parent: Parent) -> &mut Vec<PageId> {
        match parent {
            Parent::Page(page) => &mut self.nodes[page.index()].children,
            Parent::Root(adapter) => self.roots.entry(adapter).or_default(),
        }
    }

    /// Where the child with this key is, or would be.
    fn position(&self, parent: Parent, key: &PageKey) -> Result<usize, usize> {
        self.children(parent).binary_search_by(|child| self.nodes[child.index()].key.cmp(key))
    }

    /// Checks links, states and totals of the tree against each other and the pool.
    pub(crate) fn audit(&self, pool: &PagePool) -> Result<(), Discrepancy> {
        let mut counted = (0, 0, 0);
        for page in (0..self.nodes.len() as u32).map(PageId) {
            let node = &self.nodes[page.index()];
            let listed = self.evictable.contains(&(node.last_use, page));
            let evictable = node.state == NodeState::Idle && node.children.is_empty();
            let linked = self.position(node.parent, &node.key).is_ok_and(|at| self.children(node.parent)[at] == page);
            let sound = match node.state {
                NodeState::Absent => !listed && node.children.is_empty(),
                NodeState::Used => linked && !listed && pool.holders(page) > 1,
                NodeState::Idle => linked && listed == evictable && pool.holders(page) == 1,
            };
            if !sound {
                return Err(Discrepancy::CachedPage { page });
            }
            counted.0 += usize::from(node.state != NodeState::Absent);
            counted.1 += usize::from(node.state == NodeState::Idle);
            counted.2 += usize::from(evictable);
        }
        if counted == (self.cached, self.idle, self.evictable.len()) { Ok(()) } else { Err(Discrepancy::CacheTotals) }
    }
}
