//! How the engine is doing.

use baton_core::{EngineLoad, EngineReport, PAGE_TOKENS};

use super::Scheduler;
use crate::sequence::{Sequence, Stage};

impl Scheduler {
    /// Each report has a larger number than the one before.
    pub fn report(&mut self) -> EngineReport {
        self.reports += 1;
        self.counters.evicted_pages = self.ledger.evicted_total();
        self.handoff.count(&mut self.counters);
        EngineReport {
            sequence: self.reports,
            load: EngineLoad {
                running: self.running.len() as u32,
                waiting: self.waiting_sequences() as u32,
                pending_prefill_tokens: self.pending_prefill_tokens(),
                pages_total: self.ledger.pages_total() as u32,
                pages_free: self.ledger.pages_free() as u32,
                pages_cached: self.ledger.pages_cached() as u32,
                reservations: (self.reservations.len() + self.sequences.values().filter(|s| s.is_landing()).count())
                    as u32,
                reserved_pages: self.ledger.pages_reserved() as u32,
                exports: self.requests.values().filter(|request| request.export.is_some()).count() as u32,
            },
            counters: self.counters,
            shards: self.handoff.shards(),
        }
    }

    /// For pages, a slot, or KV that is on its way.
    pub(super) fn waiting_sequences(&self) -> usize {
        let delivering = |sequence: &&Sequence| matches!(sequence.stage, Stage::Delivering { .. });
        self.sequences.len() - self.running.len() - self.sequences.values().filter(delivering).count()
    }

    pub(super) fn pending_prefill_tokens(&self) -> u64 {
        let pending = self.sequences.values().map(|sequence| match sequence.stage {
            Stage::Decoding { .. } => 0,
            // All but the last, incomplete page of the prompt will be shared.
            Stage::AwaitingPrompt => sequence.tokens.len() % PAGE_TOKENS,
            // Those behind what is on its way.
            Stage::Landing { ref pages, .. } => {
                sequence.tokens.len().saturating_sub(pages.table().pages().len() * PAGE_TOKENS).max(1)
            }
            _ => sequence.tokens.len() - sequence.computed(),
        });
        pending.map(|tokens| tokens as u64).sum()
    }
}
