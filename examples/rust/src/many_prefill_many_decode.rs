//! xPyD: any number of engines of each kind; each request takes the one with the least to do.

use std::sync::Arc;

use baton_core::{GenerateRequest, ServeError};
use baton_router::{Leg, Roster};

use crate::pick::fewest;

pub(crate) async fn route(fleet: Arc<Roster>, request: GenerateRequest) -> Result<Leg, ServeError> {
    let decode = fewest(&fleet.decode(), |engine| engine.sequences())?;
    let prefill = fewest(&fleet.prefill().pairing_with(&decode), |engine| engine.prefill_tokens())?;
    let end = request.prompt.len() as u32 - 1;
    let room = decode.prep_recv(&request, end).await?;
    let Some(missing) = room.missing() else { return decode.start_generate(request, Some((room, None))).await };
    let kv = prefill.remote_send(&request, &room, missing);
    Ok(decode.start_generate(request, Some((room, None))).await?.fed_by(kv))
}
