//! Cache-aware: what the generating engine has in its prefix cache is neither computed nor sent again.

use std::cmp::Reverse;
use std::sync::Arc;

use baton_core::{GenerateRequest, ServeError};
use baton_router::{Leg, Roster};

use crate::pick::fewest;

/// A shorter rest is computed faster than it is brought.
const ENOUGH: usize = 64;

pub(crate) async fn route(fleet: Arc<Roster>, request: GenerateRequest) -> Result<Leg, ServeError> {
    let decode = fewest(&fleet.decode(), |engine| (Reverse(engine.cached_tokens()), engine.sequences()))?;
    let end = request.prompt.len() as u32 - 1;
    let room = decode.prep_recv(&request, end).await?;
    let Some(missing) = room.missing().filter(|missing| missing.len() >= ENOUGH) else {
        drop(room);
        return decode.start_generate(request, None).await;
    };
    let others = fleet.prefill().pairing_with(&decode);
    let prefill = fewest(&others, |engine| (Reverse(engine.cached_tokens()), engine.prefill_tokens()))?;
    let kv = prefill.remote_send(&request, &room, missing);
    Ok(decode.start_generate(request, Some((room, None))).await?.fed_by(kv))
}
