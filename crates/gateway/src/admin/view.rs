//! A router and its engines as people see them.

use baton_router::{EngineStatus, Parameters};
use serde::Serialize;

use super::Administered;

#[derive(Serialize)]
pub(super) struct RouterView {
    strategy: String,
    parameters: Parameters,
    engines: Vec<EngineView>,
}

#[derive(Serialize)]
pub(super) struct EngineView {
    id: usize,
    name: String,
    /// Of an engine that was not started here.
    address: Option<String>,
    role: &'static str,
    state: &'static str,
    in_flight: InFlightView,
}

/// Of this router; others may use the engine too.
#[derive(Serialize)]
struct InFlightView {
    sequences: u32,
    prefill_tokens: u64,
}

impl Administered {
    pub(super) fn view(&self) -> RouterView {
        let strategy = self.gateway.dispatcher.strategy();
        let engines = self.gateway.dispatcher.fleet_status().into_iter();
        RouterView {
            strategy: strategy.name().to_owned(),
            parameters: strategy.parameters(),
            engines: engines.map(|engine| self.engine_view(engine)).collect(),
        }
    }

    pub(super) fn engine_view(&self, engine: EngineStatus) -> EngineView {
        let in_flight = engine.in_flight;
        EngineView {
            id: engine.id.0,
            address: self.membership.address(engine.id),
            name: engine.name,
            role: engine.role.name(),
            state: engine.state.name(),
            in_flight: InFlightView { sequences: in_flight.sequences, prefill_tokens: in_flight.prefill_tokens },
        }
    }
}
