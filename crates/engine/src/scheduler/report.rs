//! How the engine is doing.

use baton_core::{EngineLoad, EngineReport, PAGE_TOKENS};

use super::Scheduler;
use crate::sequence::Stage;

impl Scheduler {
    /// Each report has a larger number than the one before.
    pub fn report(&mut self) -> EngineReport {
        self.reports += 1;
        self.counters.evicted_pages = self.ledger.evicted_total();
        EngineReport {
            sequence: self.reports,
            load: EngineLoad {
                running: self.running.len() as u32,
                waiting: (self.sequences.len() - self.running.len()) as u32,
                pending_prefill_tokens: self.pending_prefill_tokens(),
                pages_total: self.ledger.pages_total() as u32,
                pages_free: self.ledger.pages_free() as u32,
                pages_cached: self.ledger.pages_cached() as u32,
            },
            counters: self.counters,
        }
    }

    pub(super) fn pending_prefill_tokens(&self) -> u64 {
        let pending = self.sequences.values().map(|sequence| match sequence.stage {
            Stage::Decoding { .. } => 0,
            // All but the last, incomplete page of the prompt will be shared.
            Stage::AwaitingPrompt => sequence.tokens.len() % PAGE_TOKENS,
            _ => sequence.tokens.len() - sequence.computed(),
        });
        pending.map(|tokens| tokens as u64).sum()
    }
}
