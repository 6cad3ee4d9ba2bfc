//! The engines that are ready at one moment, and what a strategy can ask of them.

use std::cmp::Reverse;
use std::sync::Arc;

use baton_core::{GenerateRequest, ServeError};
use baton_protocol::{Engine, TokenStream};

use crate::fleet::{EngineId, Role};
use crate::load::{Load, LoadGuard};

pub struct Roster {
    ready: Vec<Pick>,
}

/// Some engines of a roster, ascending by id.
pub struct Candidates<'a>(Vec<&'a Pick>);

/// One engine that was chosen.
#[derive(Clone)]
pub struct Pick {
    pub(crate) id: EngineId,
    pub(crate) role: Role,
    pub(crate) engine: Arc<dyn Engine>,
    pub(crate) load: Arc<Load>,
}

/// A request under way on an engine. Dropping it aborts the request there and gives its load back.
pub struct Leg {
    pub engine: EngineId,
    pub stream: TokenStream,
    pub load: LoadGuard,
}

impl Roster {
    pub(crate) fn new(mut ready: Vec<Pick>, avoid: Option<EngineId>) -> Self {
        if ready.iter().any(|pick| Some(pick.id) != avoid) {
            ready.retain(|pick| Some(pick.id) != avoid);
        }
        Self { ready }
    }

    pub fn is_empty(&self) -> bool {
        self.ready.is_empty()
    }

    /// Those that can take a whole request: everyone but prefill engines, or these when nobody else is there.
    pub fn serving(&self) -> Candidates<'_> {
        let decoding: Vec<_> = self.ready.iter().filter(|pick| pick.role != Role::Prefill).collect();
        if decoding.is_empty() { Candidates(self.ready.iter().collect()) } else { Candidates(decoding) }
    }
}

impl Candidates<'_> {
    /// Reported sequences plus own ones in flight; then the shorter prefill queue, then the lower id.
    pub fn least_loaded(&self) -> Result<Pick, ServeError> {
        self.0.iter().min_by_key(|pick| (pick.sequences(), pick.pending_prefill_tokens(), pick.id)).found()
    }

    /// The first after `last`, around the circle of ids.
    pub fn following(&self, last: Option<EngineId>) -> Result<Pick, ServeError> {
        self.0.iter().min_by_key(|pick| (Reverse(Some(pick.id) > last), pick.id)).found()
    }
}

trait Found {
    fn found(self) -> Result<Pick, ServeError>;
}

impl Found for Option<&&Pick> {
    fn found(self) -> Result<Pick, ServeError> {
        self.map(|pick| (*pick).clone()).ok_or_else(|| ServeError::engine("no engine is running"))
    }
}

impl Pick {
    pub fn id(&self) -> EngineId {
        self.id
    }

    pub async fn start_generate(self, request: GenerateRequest) -> Result<Leg, ServeError> {
        let load = LoadGuard::hold(&self.load, &request);
        let stream = self.engine.start_generate(request, None).await?;
        Ok(Leg { engine: self.id, stream, load })
    }

    fn sequences(&self) -> u32 {
        let reported = self.engine.report().load;
        reported.running + reported.waiting + self.load.sequences()
    }

    fn pending_prefill_tokens(&self) -> u64 {
        self.engine.report().load.pending_prefill_tokens
    }
}
