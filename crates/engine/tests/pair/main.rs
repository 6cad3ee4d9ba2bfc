//! Two schedulers that hand KV to each other over a seeded network that loses, delays, repeats and damages what it carries,
//! in tiny pools, with callers that change their mind. Every stream must be what the model says on its own, every page that
//! counts as verified must hold the right KV, and no page may be lost.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that cannot go on should stop")]

mod callers;
#[path = "../fake/mod.rs"]
mod fake;
mod network;
mod world;

use world::{Totals, simulate};

const SEEDS: u64 = 400;

#[test]
fn streams_are_exact_whatever_becomes_of_a_hand_off() {
    let mut totals = Totals::default();
    for seed in 0..SEEDS {
        simulate(seed, &mut totals);
    }
    println!("{totals:#?}");
    // A simulation in which nothing happens proves nothing.
    let Totals { engines: e, network: n, .. } = &totals;
    assert!(totals.finished > 5000 && totals.migrated > 300 && totals.aborted > 300 && totals.refused > 300);
    assert!(e.handoffs_received > 3000 && e.received_tokens > 50_000 && e.handoffs_sent > 3000);
    assert!(e.landing_timeouts > 300 && e.leases_expired > 100 && e.preemptions > 300 && e.evicted_pages > 3000);
    assert!(n.stale > 100 && n.damaged > 100 && n.too_late > 300 && n.broken > 300 && n.repeated > 100);
}
