//! Random commands against the ledger and against a reference that keeps plain lists and scans them.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use std::collections::BTreeSet;

use baton_core::{AdapterId, BlockHash, CacheEvent, Guarantee, PAGE_TOKENS, PageId, TokenId};
use baton_kv::{Origin, PageLedger, PageTable};

const SEEDS: u64 = 40;
const COMMANDS: u64 = 600;

#[test]
fn the_ledger_does_what_a_plain_list_would() {
    let mut evictions = 0;
    for seed in 0..SEEDS {
        evictions += run(seed);
    }
    assert!(evictions > 1000, "only {evictions} pages were evicted: the pools are too large to show anything");
}

/// What is cached: the tokens up to the page's end, the page, and when it was last used.
#[derive(Debug)]
struct Entry {
    adapter: Option<AdapterId>,
    tokens: Vec<TokenId>,
    page: PageId,
    last_use: u64,
}

#[derive(Default)]
struct Reference {
    entries: Vec<Entry>,
    clock: u64,
}

struct Running {
    adapter: Option<AdapterId>,
    tokens: Vec<TokenId>,
    table: PageTable,
}

fn run(seed: u64) -> u64 {
    let mut random = Random(seed);
    let pages_total = 4 + random.below(40) as usize;
    let mut ledger = PageLedger::new(pages_total, Some(Guarantee::ByToken));
    let mut reference = Reference::default();
    let mut running: Vec<Running> = Vec::new();
    let mut events = Follower::default();

    for command in 0..COMMANDS {
        if random.below(40) == 0 {
            ledger.stop_recording_cache();
            events = Follower::default();
        } else if random.below(20) == 0 {
            events = Follower { recorded: true, ..events };
            events.apply(ledger.cache_snapshot());
            ledger.take_cache_changes();
        }
        let at = random.below(running.len().max(1) as u64) as usize;
        match random.below(11) {
            0..4 => {
                let (tokens, adapter) = (random.tokens(), random.adapter());
                let origin = Origin { prompt_tokens: tokens.len(), adapter };
                let mut table = ledger.match_prefix(&tokens, origin);
                assert_eq!(table.pages(), reference.find(&tokens, adapter), "seed {seed}, command {command}");
                let wanted = tokens.len().div_ceil(PAGE_TOKENS) - table.pages().len();
                let used = [used_pages(&running), table.pages().to_vec()].concat();
                let hopeful = wanted <= ledger.pages_available();
                let short = wanted.saturating_sub(ledger.pages_free());
                match ledger.grow(&mut table, tokens.len()) {
                    Ok(()) => {
                        for _ in 0..short {
                            assert!(reference.evict(&used), "seed {seed}, command {command}");
                        }
                        running.push(Running { adapter, tokens, table });
                    }
                    Err(_) => {
                        drop(table);
                        if hopeful {
                            reference.forget_missing(&ledger);
                        }
                    }
                }
            }
            4..7 if !running.is_empty() => {
                let sequence = &running[at];
                ledger.insert(&sequence.tokens, &sequence.table);
                reference.insert(sequence);
            }
            7 => {
                let (tokens, adapter, from) = (random.tokens(), random.adapter(), random.below(4) as usize);
                assert_eq!(
                    ledger.forget(&tokens, adapter, from),
                    reference.forget(&tokens, adapter, from),
                    "seed {seed}, command {command}"
                );
            }
            8..10 if !running.is_empty() => drop(running.swap_remove(at)),
            _ => {
                let count = random.below(4) as usize;
                let expected = (0..count).take_while(|_| reference.evict(&used_pages(&running))).count();
                assert_eq!(ledger.evict(count), expected, "seed {seed}, command {command}");
            }
        }
        ledger.audit(running.iter().map(|sequence| &sequence.table), []).unwrap();
        for entry in &reference.entries {
            let path = ledger.cached_prefix(&entry.tokens, entry.adapter);
            assert_eq!(path.last(), Some(&entry.page), "seed {seed}, command {command}");
        }
        let changes = ledger.take_cache_changes();
        assert_eq!(changes.is_some(), events.recorded);
        if let Some(update) = changes {
            events.apply(update.events);
            assert_eq!(events.held, reference.hashes(), "seed {seed}, command {command}");
        }
        let used = used_pages(&running);
        let idle = reference.entries.iter().filter(|entry| !used.contains(&entry.page)).count();
        assert_eq!(ledger.pages_cached(), idle, "seed {seed}, command {command}");
    }
    running.clear();
    assert_eq!(ledger.pages_free() + reference.entries.len(), pages_total);
    ledger.evicted_total()
}

/// What is held according to the events.
#[derive(Default)]
struct Follower {
    recorded: bool,
    held: BTreeSet<BlockHash>,
}

impl Follower {
    fn apply(&mut self, events: Vec<CacheEvent>) {
        for event in events {
            match event {
                CacheEvent::Stored { parent, blocks } => {
                    assert!(parent.is_none_or(|parent| self.held.contains(&parent)), "{parent:?} is not held");
                    assert!(blocks.into_iter().all(|block| self.held.insert(block)), "stored twice");
                }
                CacheEvent::Removed { blocks } => {
                    assert!(blocks.iter().all(|block| self.held.remove(block)), "removed, but not held");
                }
                CacheEvent::Reset => self.held.clear(),
            }
        }
    }
}

fn used_pages(running: &[Running]) -> Vec<PageId> {
    running.iter().flat_map(|sequence| sequence.table.pages()).copied().collect()
}

impl Reference {
    fn hashes(&self) -> BTreeSet<BlockHash> {
        self.entries.iter().filter_map(|entry| BlockHash::chain(&entry.tokens, entry.adapter).last()).collect()
    }

    fn position(&self, tokens: &[TokenId], adapter: Option<AdapterId>) -> Option<usize> {
        self.entries.iter().position(|entry| entry.tokens == tokens && entry.adapter == adapter)
    }

    fn find(&mut self, tokens: &[TokenId], adapter: Option<AdapterId>) -> Vec<PageId> {
        self.clock += 1;
        let mut pages = Vec::new();
        for end in (PAGE_TOKENS..tokens.len()).step_by(PAGE_TOKENS) {
            let Some(at) = self.position(&tokens[..end], adapter) else { break };
            self.entries[at].last_use = self.clock;
            pages.push(self.entries[at].page);
        }
        pages
    }

    fn insert(&mut self, sequence: &Running) {
        self.clock += 1;
        for (at, &page) in sequence.table.pages().iter().enumerate().take(sequence.tokens.len() / PAGE_TOKENS) {
            let tokens = &sequence.tokens[..(at + 1) * PAGE_TOKENS];
            let (adapter, last_use) = (sequence.adapter, self.clock);
            match self.position(tokens, adapter) {
                Some(at) => self.entries[at].last_use = last_use,
                None => self.entries.push(Entry { adapter, tokens: tokens.to_vec(), page, last_use }),
            }
        }
    }

    /// Drops the least recently used entry that no sequence uses and no entry continues.
    fn evict(&mut self, used: &[PageId]) -> bool {
        let is_leaf = |entry: &Entry| {
            let continues = |other: &Entry| {
                other.adapter == entry.adapter
                    && other.tokens.len() > entry.tokens.len()
                    && other.tokens.starts_with(&entry.tokens)
            };
            !self.entries.iter().any(continues)
        };
        let evictable =
            self.entries.iter().enumerate().filter(|(_, entry)| is_leaf(entry) && !used.contains(&entry.page));
        let Some((at, _)) = evictable.min_by_key(|(_, entry)| (entry.last_use, entry.page)) else { return false };
        self.entries.remove(at);
        true
    }

    /// Drops the entry that ends `from` pages into `tokens` and one page more, and all that continue it.
    fn forget(&mut self, tokens: &[TokenId], adapter: Option<AdapterId>, from: usize) -> usize {
        let Some(prefix) = tokens.get(..(from + 1) * PAGE_TOKENS) else { return 0 };
        let before = self.entries.len();
        self.entries.retain(|entry| entry.adapter != adapter || !entry.tokens.starts_with(prefix));
        before - self.entries.len()
    }

    /// An attempt to grow that failed on pages pinned from below has evicted what it could.
    fn forget_missing(&mut self, ledger: &PageLedger) {
        self.entries.retain(|entry| ledger.cached_prefix(&entry.tokens, entry.adapter).last() == Some(&entry.page));
    }
}

struct Random(u64);

impl Random {
    /// SplitMix64.
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % bound
    }

    fn adapter(&mut self) -> Option<AdapterId> {
        (self.below(3) == 0).then_some(AdapterId(0))
    }

    /// Up to six pages over an alphabet of two, so that prefixes meet and part.
    fn tokens(&mut self) -> Vec<TokenId> {
        let mut tokens = Vec::new();
        for _ in 0..self.below(7) {
            let letter = TokenId(self.below(2) as u32);
            tokens.extend(std::iter::repeat_n(letter, PAGE_TOKENS));
        }
        tokens.extend(std::iter::repeat_n(TokenId(9), 1 + self.below(40) as usize));
        tokens
    }
}
