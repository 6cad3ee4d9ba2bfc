//! Compares what routers have heard of prefix caches with what engines hold, once nothing happens any more.

use std::sync::Arc;

use baton_core::{BlockHash, CacheEvent};
use baton_router::EngineId;

use crate::event_log::Checker;
use crate::peer::PeerKind;
use crate::world::World;

impl World {
    pub(crate) fn check_prefix_indexes(&mut self) {
        let mut routers = Vec::new();
        for peer in self.peers.iter().flatten() {
            if let PeerKind::Router { fleet, .. } = &peer.kind {
                routers.push((peer.incarnation, peer.wires.clone(), Arc::clone(fleet)));
            }
        }
        for process in self.processes.iter_mut().flatten() {
            let held = blocks(&process.cache_snapshot());
            for (router, wires, fleet) in &routers {
                let connection = wires[process.id.engine].and_then(|wire| self.connections.get(&wire));
                let Some(connection) = connection.filter(|connection| connection.process == process.id) else {
                    continue;
                };
                // Only the next reply will show it.
                if connection.wire.newest_cache_update_is_lost() {
                    continue;
                }
                let known = fleet.cached_on(EngineId(process.id.engine));
                let agrees = known
                    .as_ref()
                    .is_some_and(|known| known.blocks() == held.len() && held.iter().all(|&block| known.holds(block)));
                if !agrees {
                    let known = known.map(|known| known.blocks());
                    let message = format!("{:?} holds {}, router {router} has {known:?}", process.id, held.len());
                    self.log.report_violation(Checker::Cache, message);
                }
            }
        }
        let (lost, gaps) = (self.cache_updates_lost(), self.router_counters().cache_event_gaps);
        if gaps > lost {
            self.log.report_violation(Checker::Cache, format!("{gaps} gaps, although {lost} updates were lost"));
        }
    }

    pub(crate) fn cache_updates_lost(&self) -> u64 {
        self.connections.values().map(|connection| connection.wire.cache_updates_lost()).sum()
    }
}

/// Of a snapshot.
fn blocks(events: &[CacheEvent]) -> Vec<BlockHash> {
    let stored = events.iter().map(|event| match event {
        CacheEvent::Stored { blocks, .. } => blocks.as_slice(),
        CacheEvent::Removed { .. } | CacheEvent::Reset => &[],
    });
    stored.flatten().copied().collect()
}
