use baton_core::{GenerateRequest, ServeError};
use futures_util::future::BoxFuture;

use crate::leg::Leg;
use crate::roster::Roster;
use crate::strategy::Strategy;

/// The engine with the fewest sequences.
#[derive(Default)]
pub struct LeastLoaded;

impl Strategy for LeastLoaded {
    fn name(&self) -> &'static str {
        "least-loaded"
    }

    fn route<'a>(&'a self, roster: &'a Roster, request: GenerateRequest) -> BoxFuture<'a, Result<Leg, ServeError>> {
        Box::pin(async move { roster.serving().least_loaded()?.start_generate(request, None).await })
    }
}
