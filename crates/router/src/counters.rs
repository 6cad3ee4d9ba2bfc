//! What the router has been through, for metrics.

use std::sync::atomic::{AtomicU64, Ordering};

use baton_core::{Fault, Retry, ServeError};

#[derive(Default)]
pub(crate) struct Counters {
    pub(crate) handoffs: Counter,
    pub(crate) handoffs_failed: Counter,
    pub(crate) engine_lost: Counter,
    pub(crate) failed: Counter,
    pub(crate) busy: Counter,
    pub(crate) draining: Counter,
    pub(crate) numerics_changed: Counter,
    pub(crate) cache_event_gaps: Counter,
    pub(crate) cached_tokens_expected: Counter,
    pub(crate) cached_tokens_found: Counter,
}

#[derive(Default)]
pub(crate) struct Counter(AtomicU64);

/// Totals since the router started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RouterCounters {
    /// Remote sends that were begun.
    pub handoffs: u64,
    /// Of these, those that ended in an error: another engine sent, or the receiver computed.
    pub handoffs_failed: u64,
    /// Times events of an engine's prefix cache were lost, and a snapshot was requested.
    pub cache_event_gaps: u64,
    /// Prompt tokens that engines should find in their prefix caches, by what this router knew of them: of all requests that
    /// started without KV from another engine.
    pub cached_tokens_expected: u64,
    /// What they found.
    pub cached_tokens_found: u64,
    pub resumed: Resumed,
}

/// Attempts after the first, by what ended the one before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Resumed {
    pub engine_lost: u64,
    pub failed: u64,
    pub busy: u64,
    pub draining: u64,
    /// Among all these, those that went on where the bits may differ: without gap or repeat, but perhaps with another text.
    pub numerics_changed: u64,
}

impl Resumed {
    pub fn total(&self) -> u64 {
        self.by_reason().into_iter().map(|(_, count)| count).sum()
    }

    /// Names and numbers for a metric with a reason label; they add up to the total.
    pub fn by_reason(&self) -> [(&'static str, u64); 4] {
        [("engine_lost", self.engine_lost), ("failed", self.failed), ("busy", self.busy), ("draining", self.draining)]
    }
}

impl Counters {
    pub(crate) fn resumed(&self, after: &ServeError, engine_lost: bool) {
        let counter = match (after.fault, after.retry) {
            _ if engine_lost => &self.engine_lost,
            (Fault::Capacity, Retry::Elsewhere) => &self.draining,
            (Fault::Capacity, _) => &self.busy,
            _ => &self.failed,
        };
        counter.add();
    }

    pub(crate) fn totals(&self) -> RouterCounters {
        RouterCounters {
            handoffs: self.handoffs.get(),
            handoffs_failed: self.handoffs_failed.get(),
            cache_event_gaps: self.cache_event_gaps.get(),
            cached_tokens_expected: self.cached_tokens_expected.get(),
            cached_tokens_found: self.cached_tokens_found.get(),
            resumed: Resumed {
                engine_lost: self.engine_lost.get(),
                failed: self.failed.get(),
                busy: self.busy.get(),
                draining: self.draining.get(),
                numerics_changed: self.numerics_changed.get(),
            },
        }
    }
}

impl Counter {
    pub(crate) fn add(&self) {
        self.add_many(1);
    }

    pub(crate) fn add_many(&self, count: u64) {
        self.0.fetch_add(count, Ordering::Relaxed);
    }

    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}
