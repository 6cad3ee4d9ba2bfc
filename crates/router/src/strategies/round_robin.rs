use std::sync::{Mutex, PoisonError};

use baton_core::{GenerateRequest, ServeError};
use futures_util::future::BoxFuture;

use crate::fleet::EngineId;
use crate::leg::Leg;
use crate::pick::Pick;
use crate::roster::Roster;
use crate::strategy::Strategy;

/// Each engine in turn, whatever it has to do.
#[derive(Default)]
pub struct RoundRobin {
    last: Mutex<Option<EngineId>>,
}

impl Strategy for RoundRobin {
    fn name(&self) -> &'static str {
        "round-robin"
    }

    fn route<'a>(&'a self, roster: &'a Roster, request: GenerateRequest) -> BoxFuture<'a, Result<Leg, ServeError>> {
        Box::pin(async move { self.next(roster)?.start_generate(request, None).await })
    }
}

impl RoundRobin {
    fn next(&self, roster: &Roster) -> Result<Pick, ServeError> {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let engine = roster.serving().following(*last)?;
        *last = Some(engine.id());
        Ok(engine)
    }
}
