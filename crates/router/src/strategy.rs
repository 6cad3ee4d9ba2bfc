//! Who gets a request. A strategy sees engines only through the roster, and starts one attempt.

use std::sync::{Mutex, PoisonError};

use baton_core::{GenerateRequest, ServeError};
use futures_util::future::BoxFuture;

use crate::fleet::EngineId;
use crate::roster::{Leg, Roster};

pub trait Router: Send + Sync {
    fn name(&self) -> &'static str;

    /// Starts one attempt at `request` on engines of the roster, which is never empty.
    fn route<'a>(&'a self, roster: &'a Roster, request: GenerateRequest) -> BoxFuture<'a, Result<Leg, ServeError>>;
}

/// Each engine in turn, whatever it has to do.
#[derive(Default)]
pub struct RoundRobin {
    last: Mutex<Option<EngineId>>,
}

impl Router for RoundRobin {
    fn name(&self) -> &'static str {
        "round-robin"
    }

    fn route<'a>(&'a self, roster: &'a Roster, request: GenerateRequest) -> BoxFuture<'a, Result<Leg, ServeError>> {
        Box::pin(async move {
            let engine = {
                let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
                let engine = roster.serving().following(*last)?;
                *last = Some(engine.id());
                engine
            };
            engine.start_generate(request).await
        })
    }
}

/// The engine with the fewest sequences.
#[derive(Default)]
pub struct LeastLoaded;

impl Router for LeastLoaded {
    fn name(&self) -> &'static str {
        "least-loaded"
    }

    fn route<'a>(&'a self, roster: &'a Roster, request: GenerateRequest) -> BoxFuture<'a, Result<Leg, ServeError>> {
        Box::pin(async move {
            let engine = roster.serving().least_loaded()?;
            engine.start_generate(request).await
        })
    }
}
