use std::sync::Arc;

use baton_core::{GenerateRequest, ServeError};
use futures_util::future::BoxFuture;

use crate::leg::Leg;
use crate::roster::Roster;
use crate::strategies::kind::{PrefillUse, StrategyKind};
use crate::strategy::Strategy;

/// The engine with the fewest sequences.
#[derive(Default)]
pub struct LeastLoaded;

impl LeastLoaded {
    pub const KIND: StrategyKind = StrategyKind {
        name: "least-loaded",
        about: "The engine with the fewest sequences",
        prefill: PrefillUse::Never,
        parameters: &[],
        make: |_| Arc::new(Self),
    };
}

impl Strategy for LeastLoaded {
    fn name(&self) -> &str {
        Self::KIND.name
    }

    fn route(&self, roster: Arc<Roster>, request: GenerateRequest) -> BoxFuture<'static, Result<Leg, ServeError>> {
        Box::pin(async move { roster.serving().least_loaded()?.start_generate(request, None).await })
    }
}
