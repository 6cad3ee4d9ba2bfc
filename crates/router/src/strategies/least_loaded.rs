use std::sync::Arc;

use baton_core::{GenerateRequest, ServeError};
use futures_util::future::BoxFuture;

use crate::leg::Leg;
use crate::roster::Roster;
use crate::strategy::Strategy;

/// The engine with the fewest sequences.
#[derive(Default)]
pub struct LeastLoaded;

impl Strategy for LeastLoaded {
    fn name(&self) -> &str {
        "least-loaded"
    }

    fn route(&self, roster: Arc<Roster>, request: GenerateRequest) -> BoxFuture<'static, Result<Leg, ServeError>> {
        Box::pin(async move { roster.serving().least_loaded()?.start_generate(request, None).await })
    }
}
