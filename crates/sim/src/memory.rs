//! The KV pool of one engine process. It outlives the process, as mapped memory does, so receivers can still read it.

use std::sync::{Arc, Mutex};

use baton_core::{PAGE_TOKENS, PageId, TokenId};

use crate::clock::lock;
use crate::event_log::{Checker, EventLog};
use crate::ids::ProcessId;
use crate::model::{Attention, Block, LAYERS};

#[derive(Clone)]
pub(crate) struct Memory {
    process: ProcessId,
    log: Arc<EventLog>,
    pages: Arc<Mutex<Vec<[Cell; LAYERS as usize]>>>,
}

#[derive(Clone, Copy)]
struct Cell {
    block: Block,
    /// Number of open exports that offer it.
    offers: u32,
    /// A receiver waits for KV in it.
    expected: bool,
}

/// KV of one token, and where it lies.
pub(crate) struct Written {
    page: PageId,
    layer: u32,
    token: usize,
    kv: u64,
}

impl Memory {
    pub(crate) fn new(process: ProcessId, pages: usize, log: Arc<EventLog>) -> Self {
        let cell = Cell { block: [0; PAGE_TOKENS], offers: 0, expected: false };
        let pages = Arc::new(Mutex::new(vec![[cell; LAYERS as usize]; pages]));
        Self { process, log, pages }
    }

    pub(crate) fn block(&self, page: PageId, layer: u32) -> Block {
        lock(&self.pages)[page.index()][layer as usize].block
    }

    /// Stores a block that a receiver has copied.
    pub(crate) fn put(&self, page: PageId, layer: u32, block: Block) {
        let cell = &mut lock(&self.pages)[page.index()][layer as usize];
        self.check_not_offered(cell, page);
        cell.block = block;
    }

    pub(crate) fn offer(&self, page: PageId, layer: u32) {
        lock(&self.pages)[page.index()][layer as usize].offers += 1;
    }

    pub(crate) fn withdraw(&self, page: PageId, layer: u32) {
        lock(&self.pages)[page.index()][layer as usize].offers -= 1;
    }

    /// From now on only the fabric writes these pages, or no longer.
    pub(crate) fn expect(&self, pages: &[PageId], expected: bool) {
        let mut memory = lock(&self.pages);
        for page in pages {
            memory[page.index()].iter_mut().for_each(|cell| cell.expected = expected);
        }
    }

    /// A step writes KV that it has computed before.
    pub(crate) fn rewrite(&self, written: &Written) {
        let mut memory = lock(&self.pages);
        let cell = &mut memory[written.page.index()][written.layer as usize];
        self.check_writable(cell, written.page);
        cell.block[written.token] = written.kv;
    }

    /// What a layer has written for positions `[first, end)` of a sequence.
    pub(crate) fn written(&self, layer: u32, first: usize, end: usize, pages: &[PageId]) -> Vec<Written> {
        let memory = lock(&self.pages);
        let at = |position: usize| {
            let (page, token) = (pages[position / PAGE_TOKENS], position % PAGE_TOKENS);
            Written { page, layer, token, kv: memory[page.index()][layer as usize].block[token] }
        };
        (first..end).map(at).collect()
    }

    /// Computes positions `[first, tokens.len())` of a sequence in one layer, on top of the KV before them; `seen` gets
    /// what the layer makes of each. KV of positions from `apart` on does not look like that of prompts.
    pub(crate) fn compute(
        &self,
        layer: u32,
        (tokens, apart): (&[TokenId], usize),
        first: usize,
        pages: &[PageId],
        mut seen: impl FnMut(usize, Attention),
    ) {
        let mut memory = lock(&self.pages);
        let (mut attention, mut reference) = (Attention::of_layer(layer), Attention::of_layer(layer));
        let seen_as = |position: usize, kv: u64| if position >= apart { !kv } else { kv };
        for (position, &token) in tokens.iter().enumerate() {
            let page = pages[position / PAGE_TOKENS];
            let cell = &mut memory[page.index()][layer as usize];
            if position >= first {
                self.check_writable(cell, page);
                cell.block[position % PAGE_TOKENS] = seen_as(position, attention.kv(token));
            }
            let kv = seen_as(position, cell.block[position % PAGE_TOKENS]);
            if position < first && kv != reference.kv(token) {
                let process = self.process;
                let message =
                    format!("{process:?} reads KV at position {position}, layer {layer} that is not the sequence's");
                self.log.report_violation(Checker::Kv, message);
            }
            reference.read(reference.kv(token));
            attention.read(kv);
            if position >= first {
                seen(position, attention);
            }
        }
    }

    /// Whether positions `[begin, end)` of `tokens` are in `pages`, in one layer.
    pub(crate) fn holds(&self, layer: u32, tokens: &[TokenId], begin: usize, end: usize, pages: &[PageId]) -> bool {
        let memory = lock(&self.pages);
        let mut reference = Attention::of_layer(layer);
        tokens[..end].iter().enumerate().all(|(position, &token)| {
            let kv = reference.kv(token);
            reference.read(kv);
            position
                .checked_sub(begin)
                .is_none_or(|at| memory[pages[at / PAGE_TOKENS].index()][layer as usize].block[at % PAGE_TOKENS] == kv)
        })
    }

    /// By a step.
    fn check_writable(&self, cell: &Cell, page: PageId) {
        self.check_not_offered(cell, page);
        if cell.expected {
            let message = format!("{:?}: a step writes page {page}, in which KV is expected", self.process);
            self.log.report_violation(Checker::Reuse, message);
        }
    }

    fn check_not_offered(&self, cell: &Cell, page: PageId) {
        if cell.offers > 0 {
            let message = format!("{:?} writes page {page} while it is offered", self.process);
            self.log.report_violation(Checker::Reuse, message);
        }
    }
}
