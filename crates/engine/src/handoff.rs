//! What the scheduler needs of the fabric. Nothing here waits: answers come back as [`Scheduler::landed`],
//! [`Scheduler::revoked`] and [`Scheduler::exported`]. A simulation puts its own network behind the same trait.
//!
//! [`Scheduler::landed`]: crate::Scheduler::landed
//! [`Scheduler::revoked`]: crate::Scheduler::revoked
//! [`Scheduler::exported`]: crate::Scheduler::exported

use std::time::Duration;

use baton_core::{
    AdapterId, EngineCounters, PageId, PromptTimes, ReservationId, ServeError, ShardCounters, TokenId, TokenRange,
};

/// One hand-off to another engine. Never used twice in one process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ExportId(pub u64);

/// What is handed over is the KV of these tokens.
#[derive(Clone, Copy, Debug)]
pub struct HandedPrompt<'a> {
    pub tokens: &'a [TokenId],
    pub adapter: Option<AdapterId>,
}

pub trait HandOff: Send {
    /// From now on an engine that has the returned target may fill `pages` with the KV of the prompt from `begin` on.
    fn expect(
        &mut self,
        id: ReservationId,
        prompt: HandedPrompt<'_>,
        begin: usize,
        pages: &[PageId],
    ) -> Result<Vec<u8>, ServeError>;

    /// No write to the reservation's pages begins any more. `Some`: none is under way, and this many tokens, from the
    /// sequence's start, are verified. `None`: one is; when that has ended, which is soon, it is reported.
    fn revoke(&mut self, id: ReservationId) -> Option<usize>;

    /// When the last block was verified, or else when it was first expected.
    fn last_arrival(&mut self, id: ReservationId) -> Duration;

    /// Opens a hand-off of the KV of `prompt`. Returns the range that the receiver has room for.
    fn begin_export(&mut self, id: ExportId, prompt: HandedPrompt<'_>, target: &[u8])
    -> Result<TokenRange, ServeError>;

    /// These pages are final, or become so layer by layer in a step. They are sent in the order of their offers.
    fn offer(&mut self, offer: PageOffer);

    /// Everything was offered: the outcome follows. The receiver is sent where the time went.
    fn finish_export(&mut self, id: ExportId, times: PromptTimes);

    /// When the receiver last confirmed something, or else when the export began.
    fn last_taken(&mut self, id: ExportId) -> Duration;

    /// The export's pages may be reused after this: what is still on its way will be refused.
    fn close_export(&mut self, id: ExportId);

    /// Writes its part of the engine's counters.
    fn count(&self, counters: &mut EngineCounters);

    /// What has travelled to and from each shard of the KV pool.
    fn shards(&self) -> Vec<ShardCounters> {
        Vec::new()
    }
}

/// Consecutive pages of an exported sequence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PageOffer {
    pub export: ExportId,
    /// Which page of the sequence `pages[0]` is.
    pub first_index: usize,
    pub pages: Vec<PageId>,
    pub computed: Computed,
    /// Nothing is left to be computed after these.
    pub last: bool,
}

/// When offered pages are final.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Computed {
    Already,
    /// Layer by layer in the step with this number, of those that have rows: each of them adds the model's layers to the
    /// backend's count, so the number determines at which counts.
    InStep(u64),
}

/// The receiver's verdict on an export.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exported {
    /// From the sequence's start.
    pub verified_tokens: usize,
    /// Some of it did not match its checksum.
    pub damaged: bool,
}

/// An engine by itself.
pub struct NoHandOff;

impl NoHandOff {
    fn refuse<T>() -> Result<T, ServeError> {
        Err(ServeError::engine("this engine does not hand KV over"))
    }
}

impl HandOff for NoHandOff {
    fn expect(&mut self, _: ReservationId, _: HandedPrompt<'_>, _: usize, _: &[PageId]) -> Result<Vec<u8>, ServeError> {
        Self::refuse()
    }

    fn revoke(&mut self, _: ReservationId) -> Option<usize> {
        Some(0)
    }

    fn last_arrival(&mut self, _: ReservationId) -> Duration {
        Duration::ZERO
    }

    fn begin_export(&mut self, _: ExportId, _: HandedPrompt<'_>, _: &[u8]) -> Result<TokenRange, ServeError> {
        Self::refuse()
    }

    fn offer(&mut self, _: PageOffer) {}

    fn finish_export(&mut self, _: ExportId, _: PromptTimes) {}

    fn last_taken(&mut self, _: ExportId) -> Duration {
        Duration::ZERO
    }

    fn close_export(&mut self, _: ExportId) {}

    fn count(&self, _: &mut EngineCounters) {}
}
