//! Routers whose strategy and roles are changed while they serve.

use baton_router::{EngineId, Role};

use crate::event::Event;
use crate::peer::{PeerKind, strategy};
use crate::scenario::StrategyChoice;
use crate::world::World;

impl World {
    pub(crate) fn plan_changes(&mut self) {
        let last_ms = self.scenario.faults_end_at.as_millis() as u64;
        for _ in 0..self.scenario.changes {
            let router = self.random.index(self.scenario.routers.len());
            self.clock.at(self.random.millis(0, last_ms), Event::ChangeRouter(router));
        }
    }

    /// A router that is down begins again with what the scenario gives it.
    pub(crate) fn change_router(&mut self, router: usize) {
        let engine = EngineId(self.random.index(self.scenario.engines.len()));
        let role = self.random.pick(&Role::ALL);
        let choice = StrategyChoice::draw(&mut self.random);
        let changes_role = self.random.percent(50);
        let Some(peer) = &self.peers[router] else { return };
        let PeerKind::Router { fleet, dispatcher } = &peer.kind else { return };
        if changes_role {
            let changed = fleet.set_role(engine, role);
            debug_assert_eq!(changed, Ok(()));
        } else {
            dispatcher.set_strategy(strategy(choice));
        }
        self.past.changes += 1;
    }
}
