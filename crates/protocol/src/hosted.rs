//! An engine in this very process, as its face for callers without a session needs it.

use std::time::Duration;

use baton_core::{GenerateRequest, ServeError};
use futures_util::future::BoxFuture;

use crate::{Engine, Reservation};

pub trait HostedEngine: Engine {
    /// `prep_recv` for a caller that may never come back: the reservation also ends when nothing has arrived for `lease`,
    /// on the engine's clock.
    fn prep_recv_leased(
        &self,
        request: &GenerateRequest,
        end: u32,
        lease: Duration,
    ) -> BoxFuture<'static, Result<Reservation, ServeError>>;

    /// Recounts every page at the next step boundary; an error names what does not add up.
    fn audit(&self) -> BoxFuture<'static, Result<(), ServeError>>;
}
