//! How the engine is doing.

use std::collections::BTreeMap;

use baton_core::{CacheEvent, CacheUpdate, EngineLoad, EngineReport, PAGE_TOKENS, SessionLoad};
use baton_kv::pages_for;
use baton_protocol::SessionId;

use super::Scheduler;
use crate::sequence::{Phase, Run, Sequence, Stage};

impl Scheduler {
    /// Each report has a larger number than the one before. No session has a share in it yet.
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
                reservations: self.ledger.reservations() as u32,
                reserved_pages: self.ledger.pages_reserved() as u32,
                exports: self.requests.values().filter(|request| request.export.is_some()).count() as u32,
            },
            own: SessionLoad::default(),
            counters: self.counters,
            costs: self.costs.costs(self.limits.step_tokens),
            shards: self.handoff.shards(),
        }
    }

    /// See [`PageLedger::cache_snapshot`](baton_kv::PageLedger::cache_snapshot).
    pub fn cache_snapshot(&mut self) -> Vec<CacheEvent> {
        self.ledger.cache_snapshot()
    }

    pub fn take_cache_changes(&mut self) -> Option<CacheUpdate> {
        self.ledger.take_cache_changes()
    }

    pub fn stop_recording_cache(&mut self) {
        self.ledger.stop_recording_cache();
    }

    /// The load of each session that has any; they add up to the engine's.
    pub fn session_loads(&self) -> BTreeMap<SessionId, SessionLoad> {
        let mut loads: BTreeMap<_, SessionLoad> = BTreeMap::new();
        for sequence in self.sequences.values() {
            let load = loads.entry(sequence.request.session).or_default();
            load.sequences += u32::from(!matches!(sequence.stage, Stage::Delivering { .. }));
            load.pending_prefill_tokens += pending_tokens(sequence);
        }
        loads
    }

    /// For pages, a slot, or KV that is on its way.
    pub(super) fn waiting_sequences(&self) -> usize {
        let delivering = |sequence: &&Sequence| matches!(sequence.stage, Stage::Delivering { .. });
        self.sequences.len() - self.running.len() - self.sequences.values().filter(delivering).count()
    }

    pub(super) fn pending_prefill_tokens(&self) -> u64 {
        self.sequences.values().map(pending_tokens).sum()
    }
}

fn pending_tokens(sequence: &Sequence) -> u64 {
    let tokens = match sequence.stage {
        Stage::Running(Run { phase: Phase::Decoding, .. }) => 0,
        // All but the last, incomplete page of the prompt will be shared.
        Stage::AwaitingPrompt => sequence.tokens.len() % PAGE_TOKENS,
        // Those behind what is on its way.
        Stage::Landing { ref pages, .. } => pending_behind(pages.end(), sequence),
        Stage::Revoking { end, .. } => pending_behind(end, sequence),
        _ => sequence.tokens.len() - sequence.computed(),
    };
    tokens as u64
}

fn pending_behind(end: usize, sequence: &Sequence) -> usize {
    sequence.tokens.len().saturating_sub(pages_for(end) * PAGE_TOKENS).max(1)
}
