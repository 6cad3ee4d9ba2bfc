//! What one session gets of the prefix cache: everything when it asks, then changes.

use baton_core::{CacheEvent, CacheLog, CacheUpdate};

/// Blocks in one reply: some 40 KiB, which delay no token for long.
const REPLY_BLOCKS: usize = 4096;

/// Its numbers are the session's own. Nothing that is dropped here goes unnoticed: numbers are left out for it.
#[derive(Default)]
pub(crate) struct CacheFeed {
    needs_snapshot: bool,
    snapshot: Option<CacheUpdate>,
    /// What has changed since the last reply.
    changes: CacheLog,
}

impl CacheFeed {
    pub(crate) fn begin_anew(&mut self) {
        self.needs_snapshot = true;
    }

    pub(crate) fn needs_snapshot(&self) -> bool {
        self.needs_snapshot
    }

    /// All that was stored when the changes so far had been made: they need not be sent any more.
    pub(crate) fn fill(&mut self, snapshot: &[CacheEvent]) {
        if std::mem::take(&mut self.needs_snapshot) {
            let snapshot = CacheUpdate { first: self.changes.next(), events: snapshot.to_vec() };
            self.changes = CacheLog::starting_at(snapshot.next());
            self.snapshot = Some(snapshot);
        }
    }

    pub(crate) fn changed(&mut self, lost: u64, events: &[CacheEvent]) {
        self.changes.lose(lost);
        for event in events {
            self.changes.push(event.clone());
        }
    }

    /// A snapshot is sent at once, changes with what else there is to send.
    pub(crate) fn has_snapshot(&self) -> bool {
        self.snapshot.is_some()
    }

    pub(crate) fn has_changes(&self) -> bool {
        !self.changes.is_empty()
    }

    /// For as many replies; at least one, which may be empty.
    pub(crate) fn take(&mut self) -> impl Iterator<Item = CacheUpdate> + use<> {
        self.snapshot.take().unwrap_or_else(|| self.changes.take()).pieces(REPLY_BLOCKS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(feed: &mut CacheFeed) -> Vec<(u64, usize)> {
        feed.take().map(|update| (update.first, update.events.len())).collect()
    }

    #[test]
    fn numbers_go_on_over_snapshots_and_losses() {
        let (reset, removed) = (CacheEvent::Reset, CacheEvent::Removed { blocks: vec![] });
        let mut feed = CacheFeed::default();
        feed.fill(std::slice::from_ref(&reset));
        assert!(!feed.has_snapshot(), "none was wanted");
        feed.begin_anew();
        feed.fill(&[reset.clone(), removed.clone()]);
        assert!(feed.has_snapshot());
        assert_eq!(sent(&mut feed), [(0, 2)]);
        assert_eq!(sent(&mut feed), [(2, 0)]);
        feed.changed(0, &[removed.clone(), removed.clone()]);
        assert!(feed.has_changes());
        assert_eq!(sent(&mut feed), [(2, 2)]);
        feed.changed(5, std::slice::from_ref(&removed));
        assert_eq!(sent(&mut feed), [(9, 1)]);
        // Changes that a snapshot contains are not sent, and their numbers are left out.
        feed.changed(0, &[removed]);
        feed.begin_anew();
        feed.fill(&[reset]);
        assert_eq!(sent(&mut feed), [(11, 1)]);
        assert_eq!(sent(&mut feed), [(12, 0)]);
    }
}
