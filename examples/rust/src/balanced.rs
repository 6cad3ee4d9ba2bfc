//! Balanced: the generating engine computes a share of each prompt itself, so that neither side waits for the other.

use std::sync::Arc;

use baton_core::{GenerateRequest, ServeError};
use baton_router::{Leg, Roster};

use crate::pick::fewest;

const SHARE: f64 = 0.2;

pub(crate) async fn route(fleet: Arc<Roster>, request: GenerateRequest) -> Result<Leg, ServeError> {
    let decode = fewest(&fleet.decode(), |engine| engine.sequences())?;
    let prefill = fewest(&fleet.prefill().pairing_with(&decode), |engine| engine.prefill_tokens())?;
    let tokens = request.prompt.len();
    let end = (((1.0 - SHARE) * tokens as f64) as usize).min(tokens - 1) as u32;
    let room = decode.prep_recv(&request, end).await?;
    let Some(missing) = room.missing() else { return decode.start_generate(request, Some((room, None))).await };
    let kv = prefill.remote_send(&request, &room, missing);
    Ok(decode.start_generate(request, Some((room, None))).await?.fed_by(kv))
}
