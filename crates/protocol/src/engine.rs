//! The one seam between routers and engines. A session client, an in-process engine and a simulated engine all stand
//! behind [`Engine`]; a router cannot tell them apart.

use std::sync::Arc;

use baton_core::{EngineInfo, EngineReport, GenerateRequest, ServeError, TokenRange};
use futures_util::future::BoxFuture;

use crate::{CacheFollower, Destination, Heartbeats, Reservation, Sent, TokenStream};

/// Three calls, from which a router composes any way of serving a request:
///
/// ```text
///   decode engine    prep_recv ─▶ Reservation ─────────────┬──▶ start_generate ─▶ TokenStream
///   prefill engine                  └─▶ remote_send ─▶ Sent ┘
/// ```
///
/// `start_generate` alone is plain serving; `prep_recv` and `remote_send` without it move a prompt's KV into the receiver's
/// prefix cache. All calls of one attempt carry the same request id and attempt.
///
/// Calls are made when the method is called; the futures only wait for the answer. Dropping a future aborts its call.
pub trait Engine: Send + Sync {
    fn info(&self) -> &EngineInfo;

    /// The newest report this side has seen.
    fn report(&self) -> EngineReport;

    /// `None`: it has none, as in this very process, and is never held for hung.
    fn heartbeats(&self) -> Option<Heartbeats> {
        None
    }

    /// From now on `follower` gets what the engine's prefix cache holds: all of it, beginning with a reset, then every
    /// change. Called again, for instance after a gap in the numbers, it begins anew. An engine that reports nothing of its
    /// cache ignores it.
    fn follow_cache(&self, _follower: Arc<dyn CacheFollower>) {}

    /// `false` once the engine is known to be gone: it never comes back under this handle.
    fn is_alive(&self) -> bool;

    /// Reserves pages for the KV of `prompt[..end]` as far as it is not cached. `end` may be the prompt's length.
    fn prep_recv(&self, request: &GenerateRequest, end: u32) -> BoxFuture<'static, Result<Reservation, ServeError>>;

    /// Computes the KV of `prompt[..range.end]` and hands `range` to another engine's reservation, layer by layer. Answers
    /// when the receiver has verified it. What lies below the reservation's `matched` is computed but not taken.
    fn remote_send(
        &self,
        request: &GenerateRequest,
        to: &Destination,
        range: TokenRange,
    ) -> BoxFuture<'static, Result<Sent, ServeError>>;

    /// Computes what of the prompt is not there, then decodes. With a reservation but nothing `Sent` yet it first waits for
    /// the KV to arrive, until it has, or [`TokenStream::expect_no_more`]. Events arrive on the stream; dropping it aborts
    /// the request within one step.
    fn start_generate(
        &self,
        request: GenerateRequest,
        handoff: Option<(Reservation, Option<Sent>)>,
    ) -> BoxFuture<'static, Result<TokenStream, ServeError>>;
}
