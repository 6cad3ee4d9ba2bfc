use std::sync::{Arc, Mutex, PoisonError};

use baton_core::{GenerateRequest, ServeError};
use futures_util::future::BoxFuture;

use crate::engine::EngineId;
use crate::leg::Leg;
use crate::pick::Pick;
use crate::roster::Roster;
use crate::strategies::kind::{PrefillUse, StrategyKind};
use crate::strategy::Strategy;

/// Each engine in turn, whatever it has to do.
#[derive(Default)]
pub struct RoundRobin {
    last: Mutex<Option<EngineId>>,
}

impl Strategy for RoundRobin {
    fn name(&self) -> &str {
        Self::KIND.name
    }

    fn route(&self, roster: Arc<Roster>, request: GenerateRequest) -> BoxFuture<'static, Result<Leg, ServeError>> {
        let engine = self.next(&roster);
        Box::pin(async move { engine?.start_generate(request, None).await })
    }
}

impl RoundRobin {
    pub const KIND: StrategyKind = StrategyKind {
        name: "round-robin",
        about: "Each engine in turn",
        prefill: PrefillUse::Never,
        parameters: &[],
        make: |_| Arc::new(Self::default()),
    };

    fn next(&self, roster: &Roster) -> Result<Pick, ServeError> {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let engine = roster.serving().following(*last)?;
        *last = Some(engine.id());
        Ok(engine)
    }
}
