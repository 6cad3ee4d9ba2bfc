//! What a router knows of prefix caches, and how it notices that it has missed something.

use std::sync::Arc;

use baton_core::{BlockHash, CacheEvent, TokenId};
use baton_router::{EngineId, Fleet};

use crate::scripted::{Scripted, fleet};

fn blocks(first: u32, pages: usize) -> Vec<BlockHash> {
    let tokens: Vec<_> = (first..).take(32 * pages).map(TokenId).collect();
    BlockHash::chain(&tokens, None).collect()
}

fn held(fleet: &Fleet, chain: &[BlockHash]) -> usize {
    fleet.cached_on(EngineId(0)).unwrap().matching(chain)
}

#[test]
fn a_gap_is_counted_and_repaired_by_a_snapshot() {
    let engine = Scripted::new([]);
    let fleet = fleet(&[&engine]);
    let requested = || engine.followers.lock().unwrap().len();
    let stored = |blocks: &[BlockHash]| CacheEvent::Stored { parent: None, blocks: blocks.to_vec() };
    assert_eq!(requested(), 1, "an engine is followed from the moment on at which it is ready");

    let chain = blocks(0, 3);
    engine.report_cache(0, vec![CacheEvent::Reset, stored(&chain[..1])]);
    engine.report_cache(2, vec![stored(&chain[1..2])]);
    assert_eq!((held(&fleet, &chain), requested(), fleet.totals().cache_event_gaps), (2, 1, 0));

    engine.report_cache(4, vec![CacheEvent::Removed { blocks: chain[1..2].to_vec() }]);
    assert_eq!((held(&fleet, &chain), requested(), fleet.totals().cache_event_gaps), (2, 2, 1));
    engine.report_cache(5, vec![]);
    assert_eq!((requested(), fleet.totals().cache_event_gaps), (2, 1), "one gap, one snapshot");
    engine.report_cache(5, vec![CacheEvent::Reset, stored(&chain)]);
    assert_eq!((held(&fleet, &chain), requested(), fleet.totals().cache_event_gaps), (3, 2, 1));
}

#[test]
fn an_engine_that_starts_again_holds_nothing() {
    let (engine, after) = (Scripted::new([]), Scripted::new([]));
    let fleet = fleet(&[&engine]);
    let chain = blocks(0, 2);
    let snapshot = || vec![CacheEvent::Reset, CacheEvent::Stored { parent: None, blocks: chain.clone() }];
    engine.report_cache(0, snapshot());
    assert_eq!(held(&fleet, &chain), 2);

    fleet.engine_down(EngineId(0));
    assert!(fleet.cached_on(EngineId(0)).is_none());
    fleet.engine_restarting(EngineId(0));
    fleet.engine_ready(EngineId(0), Arc::clone(&after) as _);
    assert_eq!(held(&fleet, &chain), 0);
    engine.report_cache(2, vec![]);
    engine.report_cache(2, snapshot());
    assert_eq!(held(&fleet, &chain), 0, "events of the session before");
    after.report_cache(0, snapshot());
    assert_eq!(held(&fleet, &chain), 2);
    assert_eq!(fleet.totals().cache_event_gaps, 0);
}
