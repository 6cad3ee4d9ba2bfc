//! The three calls in their usual order: reserve, send, generate.

use std::sync::Arc;

use baton_core::{Fault, GenerateRequest, Retry, ServeError};

use crate::decision::{Explanation, Placement};
use crate::leg::Leg;
use crate::pick::Pick;
use crate::roster::Candidates;

/// `prompt[..end]` is computed by the first of `prefill` that can, and sent to `decode`, which computes the rest and
/// generates. What `decode` has of it already is not sent.
pub(super) async fn hand_over(
    prefill: Candidates,
    decode: &Pick,
    request: GenerateRequest,
    end: u32,
) -> Result<Leg, ServeError> {
    let reserved = match decode.prep_recv(&request, end).await {
        Ok(reserved) => reserved,
        // No room to receive into, now or ever. In its queue the request is served in any case, if not as well.
        Err(full) if full.fault == Fault::Capacity && full.retry != Retry::Elsewhere => {
            return decode.start_generate(request, None).await;
        }
        Err(error) => return Err(error),
    };
    let Some(missing) = reserved.missing() else {
        return decode.start_generate(request, Some((reserved, None))).await;
    };
    // The decode engine waits for the KV by itself: started now, it needs no message from us when all has arrived.
    let sender = prefill.least_loaded()?;
    let sending = prefill.remote_send(&request, &reserved, missing);
    let leg = decode.start_generate(request, Some((reserved, None))).await?;
    let placement = Placement::HandOff { prefill: sender.name, decode: Arc::clone(&decode.name), end };
    Ok(leg.fed_by(sending).explained(Explanation::of(placement)))
}
