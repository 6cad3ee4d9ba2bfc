//! Counters over a run.

use baton_core::EngineCounters;
use baton_router::RouterCounters;

use crate::client_requests::ClientCounts;
use crate::fabric::TransferCounts;

/// Counters over one run or many. Tests demand that each kind of event occurs.
#[derive(Clone, Copy, Debug, Default)]
pub struct Totals {
    pub clients: ClientCounts,
    pub engines: EngineCounters,
    pub routers: RouterCounters,
    pub transfers: TransferCounts,
    pub faults: u64,
    /// Of strategies and roles.
    pub changes: u64,
    pub hangs: HangCounts,
    /// Cache events of a reply, which arrived without them.
    pub cache_updates_lost: u64,
}

/// What routers have made of engines that hang.
#[derive(Clone, Copy, Debug, Default)]
pub struct HangCounts {
    pub noticed: u64,
    /// Engines that are used again, without a restart.
    pub back: u64,
    pub restarted: u64,
    /// Routers that were suspended themselves.
    pub suspended: u64,
    pub slow_steps: u64,
}

/// Counters of engines and routers that have ended.
#[derive(Default)]
pub(crate) struct Past {
    pub(crate) engines: EngineCounters,
    pub(crate) routers: RouterCounters,
    pub(crate) faults: u64,
    pub(crate) changes: u64,
    pub(crate) hangs: HangCounts,
}

impl Totals {
    pub fn add(&mut self, other: &Self) {
        let (clients, theirs) = (&mut self.clients, &other.clients);
        clients.served += theirs.served;
        clients.refused += theirs.refused;
        clients.failed += theirs.failed;
        clients.busy += theirs.busy;
        clients.cut_off += theirs.cut_off;
        clients.left += theirs.left;
        self.engines.add(&other.engines);
        self.routers.add(&other.routers);
        let (transfers, theirs) = (&mut self.transfers, &other.transfers);
        transfers.taken += theirs.taken;
        transfers.stale += theirs.stale;
        transfers.withheld += theirs.withheld;
        transfers.damaged += theirs.damaged;
        transfers.unknown += theirs.unknown;
        transfers.repeated += theirs.repeated;
        transfers.out_of_order += theirs.out_of_order;
        transfers.revoked_in_copy += theirs.revoked_in_copy;
        transfers.links_broken += theirs.links_broken;
        self.faults += other.faults;
        self.changes += other.changes;
        self.cache_updates_lost += other.cache_updates_lost;
        let (hangs, theirs) = (&mut self.hangs, &other.hangs);
        hangs.noticed += theirs.noticed;
        hangs.back += theirs.back;
        hangs.restarted += theirs.restarted;
        hangs.suspended += theirs.suspended;
        hangs.slow_steps += theirs.slow_steps;
    }
}

pub(crate) trait Sum {
    fn add(&mut self, other: &Self);
}

impl Sum for EngineCounters {
    fn add(&mut self, other: &Self) {
        self.preemptions += other.preemptions;
        self.evicted_pages += other.evicted_pages;
        self.cached_tokens += other.cached_tokens;
        self.handoffs_received += other.handoffs_received;
        self.received_tokens += other.received_tokens;
        self.handoffs_sent += other.handoffs_sent;
        self.landing_timeouts += other.landing_timeouts;
        self.leases_expired += other.leases_expired;
        self.generated_tokens += other.generated_tokens;
    }
}

impl Sum for RouterCounters {
    fn add(&mut self, other: &Self) {
        self.handoffs += other.handoffs;
        self.handoffs_failed += other.handoffs_failed;
        self.cache_event_gaps += other.cache_event_gaps;
        self.cached_tokens_expected += other.cached_tokens_expected;
        self.cached_tokens_found += other.cached_tokens_found;
        self.resumed.engine_lost += other.resumed.engine_lost;
        self.resumed.failed += other.resumed.failed;
        self.resumed.busy += other.resumed.busy;
        self.resumed.draining += other.resumed.draining;
    }
}
