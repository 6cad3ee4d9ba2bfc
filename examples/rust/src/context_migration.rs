//! Context migration: a conversation leaves a busy engine, and its KV goes with it.

use std::cmp::Reverse;
use std::sync::Arc;

use baton_core::{GenerateRequest, ServeError};
use baton_router::{Leg, Roster};

use crate::pick::fewest;

/// An engine keeps a conversation while it has no more than this many requests above the least busy one.
const MOST: u32 = 4;

pub(crate) async fn route(fleet: Arc<Roster>, request: GenerateRequest) -> Result<Leg, ServeError> {
    let home = fewest(&fleet.engines(), |engine| (Reverse(engine.cached_tokens()), engine.sequences()))?;
    let refuge = fewest(&fleet.engines().pairing_with(&home), |engine| engine.sequences());
    let refuge = refuge.ok().filter(|refuge| home.sequences() > refuge.sequences() + MOST);
    let Some(refuge) = refuge.filter(|_| home.cached_tokens() > 0) else {
        return home.start_generate(request, None).await;
    };
    let room = refuge.prep_recv(&request, request.prompt.len() as u32 - 1).await?;
    let Some(missing) = room.missing() else { return refuge.start_generate(request, Some((room, None))).await };
    let kv = home.remote_send(&request, &room, missing);
    Ok(refuge.start_generate(request, Some((room, None))).await?.fed_by(kv))
}
