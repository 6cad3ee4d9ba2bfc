//! 1P1D: one engine computes prompts, another one generates. KV goes from the first to the second while it is computed.

use std::sync::Arc;

use baton_core::{GenerateRequest, ServeError};
use baton_router::{Leg, Roster};

use crate::pick::fewest;

pub(crate) async fn route(fleet: Arc<Roster>, request: GenerateRequest) -> Result<Leg, ServeError> {
    let prefill = fewest(&fleet.prefill(), |engine| engine.id())?;
    let decode = fewest(&fleet.decode(), |engine| engine.id())?;
    // The last token of the prompt stays with the engine that generates: the first new token is sampled from it.
    let end = request.prompt.len() as u32 - 1;
    let room = decode.prep_recv(&request, end).await?;
    let Some(missing) = room.missing() else { return decode.start_generate(request, Some((room, None))).await };
    let kv = prefill.remote_send(&request, &room, missing);
    Ok(decode.start_generate(request, Some((room, None))).await?.fed_by(kv))
}
