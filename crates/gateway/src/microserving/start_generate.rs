//! `POST /microserving/start_generate`: continues a prompt, on top of the KV that was received for it.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::response::Response;
use baton_core::GenerateRequest;
use tokio::time::Instant;

use super::Calls;
use super::call::{Call, position};
use super::names::Name;
use crate::answer::answer;
use crate::body;
use crate::completions::TextCompletion;
use crate::error::ApiError;
use crate::generation::Routed;

/// With a reservation it waits for KV that is still on its way. Without one, or where KV is missing, the engine computes
/// the prompt itself: the answer is the same.
pub(super) async fn start_generate(State(calls): State<Arc<Calls>>, body: Body) -> Result<Response, ApiError> {
    let arrived = Instant::now();
    let received = body::admit(&calls.gateway, body).await?;
    let mut fields = received.fields()?;
    let Call { user, mut completion } = Call::take(&mut fields, &calls.gateway.card)?;
    let begin: i64 = fields.require("begin")?;
    let mut echoes = calls.gateway.bodies.share();
    let prompts = completion.prompts(&calls.gateway, &mut echoes).await?;
    let begin = position("begin", begin, prompts[0].tokens.len())?;

    let mut turn = calls.names.enter(user.map(Name::Receiving))?;
    let (id, reservation) = (turn.request, turn.take_reservation());
    let shape = TextCompletion { logprobs: completion.logprobs.is_some() };
    let job = completion.into_job(prompts, arrived, Box::new((received.into_permit(), echoes, turn)));
    let request = GenerateRequest { id, ..job.request(&job.prompts[0]) };
    let nothing_is_sent = reservation.as_ref().is_some_and(|reserved| begin <= reserved.matched);
    let handoff = reservation.map(|reservation| (reservation, None));
    let mut stream = calls.engine.start_generate(request, handoff).await?;
    if nothing_is_sent {
        stream.expect_no_more();
    }
    answer(&calls.gateway, shape, job, vec![Routed { events: stream, route: None }]).await
}
