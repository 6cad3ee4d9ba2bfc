//! Who gets pages, and who loses them.

use baton_core::PAGE_TOKENS;
use baton_kv::{Origin, PageTable, pages_for};

use super::Scheduler;
use crate::handoff::Computed;
use crate::sequence::{Run, Sequence, SequenceId, Stage};

/// Pages for all tokens of a sequence, `[0, computed)` of which are there already.
struct Allocation {
    pages: PageTable,
    computed: usize,
    /// Prompt tokens that came from the prefix cache.
    cached_tokens: usize,
}

impl Scheduler {
    pub(super) fn make_ready(&mut self, id: SequenceId) {
        if let Some(sequence) = self.sequences.get_mut(&id) {
            sequence.stage = Stage::Waiting;
            self.waiting.insert(id);
        }
    }

    /// Gives pages for all its tokens to the sequence that has waited longest. `None` when there is none or it has to go
    /// on waiting; no other overtakes it, so it gets its turn.
    pub(super) fn admit_next(&mut self) -> Option<SequenceId> {
        let id = *self.waiting.first()?;
        let sequence = self.sequences.get(&id)?;
        let has_slot = matches!(sequence.stage, Stage::Preempted { .. });
        if self.running.len() >= self.limits.max_running {
            return None;
        }
        if !has_slot && !self.slots.any_free() {
            if self.nothing_runs() {
                self.reclaim_slot();
            }
            return None;
        }

        let Allocation { pages, computed, cached_tokens } = self.allocate(id)?;
        let sequence = self.sequences.get_mut(&id)?;
        let slot = match sequence.stage {
            Stage::Preempted { slot } => Some(slot),
            _ => self.requests.get(&sequence.request).and_then(|request| {
                let outputs = &sequence.tokens[request.input.prompt.len()..];
                self.slots.take(request.sampler(sequence.choice, outputs))
            }),
        };
        sequence.stage = Stage::Running(Run::new(slot?, pages, computed));
        if let Some(request) = self.requests.get_mut(&sequence.request) {
            request.note_cached_tokens(id, cached_tokens);
            request.progress.admit(self.planned_at);
        }
        self.counters.cached_tokens += cached_tokens as u64;
        self.waiting.remove(&id);
        let at = self.running.partition_point(|&running| running < id);
        self.running.insert(at, id);
        let cached = self.offer_of(id, 0..computed, Computed::Already);
        if let Some(cached) = cached.filter(|cached| !cached.pages.is_empty()) {
            self.handoff.offer(cached);
        }
        Some(id)
    }

    /// A sequence whose KV has just landed may be older than all that ran and was preempted meanwhile: the youngest of those
    /// gives its slot back, and gets another with the same state when its turn comes.
    fn reclaim_slot(&mut self) {
        for id in self.waiting.iter().rev() {
            let Some(sequence) = self.sequences.get_mut(id) else { continue };
            if let Stage::Preempted { slot } = sequence.stage {
                sequence.stage = Stage::Waiting;
                return self.slots.release(slot);
            }
        }
    }

    /// While nothing runs, pages that wait for their turn with a younger sequence must not hold up the oldest.
    fn allocate(&mut self, id: SequenceId) -> Option<Allocation> {
        loop {
            let received = self.is_received(id);
            let allocation = if received { self.allocate_received(id) } else { self.allocate_new(id) };
            if allocation.is_some() || !self.nothing_runs() {
                return allocation;
            }
            // Having lost its own pages it takes them from the cache, or computes them.
            let lost_its_own = received && !self.is_received(id);
            if !lost_its_own && !self.give_up_received(id) {
                return None;
            }
        }
    }

    fn is_received(&self, id: SequenceId) -> bool {
        self.sequences.get(&id).is_some_and(|sequence| matches!(sequence.stage, Stage::Received { .. }))
    }

    fn allocate_new(&mut self, id: SequenceId) -> Option<Allocation> {
        let tokens = self.sequences.get(&id)?.tokens.len();
        let (mut pages, cached_tokens) = self.prefix_of(id)?;
        let computed = pages.pages().len() * PAGE_TOKENS;
        let wanted = pages_for(tokens).saturating_sub(pages.pages().len());
        let enough = wanted + self.headroom() <= self.ledger.pages_available();
        if !enough || self.ledger.grow(&mut pages, tokens).is_err() {
            return None;
        }
        Some(Allocation { pages, computed, cached_tokens })
    }

    fn allocate_received(&mut self, id: SequenceId) -> Option<Allocation> {
        let headroom = self.headroom();
        let Sequence { tokens, stage, .. } = self.sequences.get_mut(&id)?;
        let Stage::Received { pages, .. } = stage else { return None };
        let wanted = pages_for(tokens.len()).saturating_sub(pages.table().pages().len());
        if wanted + headroom > self.ledger.pages_available() {
            return None;
        }
        let Stage::Received { pages, computed } = std::mem::replace(stage, Stage::Waiting) else { return None };
        let cached_tokens = pages.matched_tokens();
        let mut pages = pages.into_table();
        // Of the cached pages that count as available one may lie above these, under another copy of the same beginning: it
        // cannot be evicted before they are.
        if self.ledger.grow(&mut pages, tokens.len()).is_err() {
            self.ledger.insert(&tokens[..computed], &pages);
            return None;
        }
        Some(Allocation { pages, computed, cached_tokens })
    }

    /// Within the next half page of steps half of the running sequences need another page: what is admitted now should not
    /// be preempted for that.
    pub(super) fn headroom(&self) -> usize {
        self.running.len().div_ceil(2)
    }

    /// Pages that hold the beginning of a sequence already: from the prefix cache, or from a running choice of the same
    /// request. They never include its last token. With them, how many prompt tokens came from the cache.
    fn prefix_of(&mut self, id: SequenceId) -> Option<(PageTable, usize)> {
        let sequence = self.sequences.get(&id)?;
        let request = self.requests.get(&sequence.request)?;
        let prompt_tokens = request.input.prompt.len();
        let origin = Origin { prompt_tokens, adapter: request.input.adapter };

        let cached = if request.needs_whole_prompt(id) {
            self.ledger.empty_table(origin)
        } else {
            self.ledger.match_prefix(&sequence.tokens, origin)
        };
        let sharable_tokens = prompt_tokens.min(sequence.tokens.len() - 1);
        let whole_pages = |other: &Sequence| other.computed().min(sharable_tokens) / PAGE_TOKENS;
        let others = request.sequences.iter().filter(|&&other| other != id);
        let donor = others.filter_map(|other| self.sequences.get(other)).max_by_key(|other| whole_pages(other));
        if let Some(donor) = donor
            && let Some(pages) = donor.pages()
            && whole_pages(donor) > cached.pages().len()
        {
            return Some((self.ledger.share_prefix(pages, whole_pages(donor)), 0));
        }
        let cached_tokens = (cached.pages().len() * PAGE_TOKENS).min(prompt_tokens);
        Some((cached, cached_tokens))
    }

    /// Allocates a page for the newest token of a decoding sequence where it needs one: from free and cached pages, else from
    /// the youngest sequences. `false` when it was the youngest itself, or when steps are in flight: a sequence gives up its
    /// pages only when no step samples for it, since a sampled token has changed the state of its slot.
    pub(super) fn allocate_or_preempt(&mut self, id: SequenceId) -> bool {
        loop {
            let Some(Sequence { tokens, stage: Stage::Running(run), .. }) = self.sequences.get_mut(&id) else {
                return false;
            };
            if self.ledger.grow(&mut run.pages, tokens.len() + run.sampling).is_ok() {
                return true;
            }
            if !self.in_flight.is_empty() {
                self.draining = true;
                return false;
            }
            self.preempt_youngest();
        }
    }

    /// Exports are left alone: they have all the pages they need, and end soon.
    fn preempt_youngest(&mut self) {
        let Some(at) = self.running.iter().rposition(|&id| !self.is_export(id)) else { return };
        let id = self.running.remove(at);
        let Some(sequence) = self.sequences.get_mut(&id) else { return };
        let computed = sequence.computed();
        if let Stage::Running(Run { slot, pages, .. }) = std::mem::replace(&mut sequence.stage, Stage::Waiting) {
            sequence.stage = Stage::Preempted { slot };
            self.slots.lose_pages(slot);
            self.ledger.insert(&sequence.tokens[..computed], &pages);
        }
        self.waiting.insert(id);
        self.counters.preemptions += 1;
    }
}
