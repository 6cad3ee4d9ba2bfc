//! Thousands of seeds, each of which must keep every rule. Several tests, so that they run side by side.
//!
//! `BATON_SIM_SEEDS=5000` runs that many in each; `BATON_SIM_SEED=7` with `one_seed` replays one.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on should stop")]

mod env;

use baton_sim::{Run, Totals};

const SEEDS_PER_PART: u64 = 500;

macro_rules! parts {
    ($($name:ident = $part:literal),*) => {
        $(#[test]
        fn $name() {
            seeds_of($part);
        })*
    };
}

parts!(part_0 = 0, part_1 = 1, part_2 = 2, part_3 = 3, part_4 = 4, part_5 = 5, part_6 = 6, part_7 = 7);

fn seeds_of(part: u64) {
    let count = env::number("BATON_SIM_SEEDS").unwrap_or(SEEDS_PER_PART);
    let mut totals = Totals::default();
    for seed in part * count..(part + 1) * count {
        match Run::of(seed).verdict() {
            Ok(outcome) => totals.add(&outcome.totals),
            Err(failure) => panic!("{failure}"),
        }
    }
    println!("{totals:#?}");
    if count >= SEEDS_PER_PART {
        check_that_something_happened(&totals, count);
    }
}

/// A simulation in which nothing happens proves nothing.
fn check_that_something_happened(totals: &Totals, seeds: u64) {
    let Totals { clients, engines, routers, transfers, faults, changes, hangs, cache_updates_lost } = totals;
    let resumed = &routers.resumed;
    let at_least = [
        ("clients served", clients.served, 15 * seeds),
        ("clients that left", clients.left, seeds / 2),
        ("clients cut off", clients.cut_off, seeds / 4),
        ("requests refused as busy", clients.busy, seeds / 8),
        ("faults", *faults, seeds),
        ("changes of strategies and roles", *changes, 3 * seeds),
        ("requests resumed after an engine was lost", resumed.engine_lost, seeds / 4),
        ("requests resumed after a failure", resumed.failed, seeds / 4),
        ("requests resumed elsewhere while an engine drained", resumed.draining, seeds / 20),
        ("hand-offs received", engines.handoffs_received, 4 * seeds),
        ("hand-offs given up as late", engines.landing_timeouts, seeds / 8),
        ("leases that ran out", engines.leases_expired, seeds / 20),
        ("preemptions", engines.preemptions, seeds / 20),
        ("pages evicted", engines.evicted_pages, 4 * seeds),
        ("blocks taken", transfers.taken, 10 * seeds),
        ("stale blocks", transfers.stale, seeds / 250),
        ("blocks withheld", transfers.withheld, seeds / 20),
        ("damaged blocks", transfers.damaged, seeds / 40),
        ("offers to reservations that were gone", transfers.unknown, seeds / 4),
        ("repeated messages", transfers.repeated, seeds / 20),
        ("messages out of order", transfers.out_of_order, seeds / 20),
        ("revoked while copied", transfers.revoked_in_copy, seeds / 200),
        ("links broken", transfers.links_broken, seeds / 8),
        ("cache updates lost", *cache_updates_lost, seeds / 4),
        ("gaps between cache events", routers.cache_event_gaps, seeds / 8),
        ("tokens routers expected in prefix caches", routers.cached_tokens_expected, 30 * seeds),
        ("tokens engines found there", routers.cached_tokens_found, 30 * seeds),
        ("hung engines that routers noticed", hangs.noticed, seeds / 16),
        ("hung engines that came back by themselves", hangs.back, seeds / 32),
        ("hung engines that were restarted", hangs.restarted, seeds / 64),
        ("routers that were suspended", hangs.suspended, seeds / 32),
        ("steps that took seconds", hangs.slow_steps, seeds / 8),
    ];
    for (what, happened, expected) in at_least {
        assert!(happened >= expected, "{what}: {happened} in {seeds} seeds");
    }
    // Where the only engine that generates has stopped for good, no request is served.
    assert!(clients.failed * 30 < clients.served, "too many failures: {clients:?}");
}
