//! Data parallel: every engine does everything, and a request goes to the one with the fewest.

use std::sync::Arc;

use baton_core::{GenerateRequest, ServeError};
use baton_router::{Leg, Roster};

use crate::pick::fewest;

pub(crate) async fn route(fleet: Arc<Roster>, request: GenerateRequest) -> Result<Leg, ServeError> {
    let engine = fewest(&fleet.engines(), |engine| engine.sequences())?;
    engine.start_generate(request, None).await
}
