//! An engine as a router sees it: the real calls over a simulated connection.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use baton_core::{EngineInfo, EngineReport, GenerateRequest, ServeError, TokenRange};
use baton_protocol::{
    CacheFollower, Caller, Destination, Engine, Heartbeat, Heartbeats, OpenRequests, Reservation, Sent, TokenStream,
};
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, ready};

use crate::mutation::Mutation;
use crate::wire::{Commands, Wire};

pub(crate) struct Session {
    info: EngineInfo,
    pub(crate) open: Arc<OpenRequests>,
    pub(crate) caller: Caller<Commands>,
    heartbeat_source: Option<HeartbeatSource>,
    /// How often its heartbeats were read.
    queries: AtomicU64,
}

/// Which heartbeats a router sees.
#[derive(Clone, Copy)]
pub(crate) enum HeartbeatSource {
    AsReceived,
    /// A planted bug: silence sounds like a heartbeat.
    Always,
}

impl HeartbeatSource {
    pub(crate) fn with(mutation: Option<Mutation>) -> Self {
        if mutation == Some(Mutation::TrustSilence) { Self::Always } else { Self::AsReceived }
    }
}

impl Session {
    /// `heartbeat_source`: `None` where no heartbeats are sent.
    pub(crate) fn new(info: EngineInfo, wire: &Arc<Wire>, heartbeat_source: Option<HeartbeatSource>) -> Arc<Self> {
        let open = Arc::new(OpenRequests::default());
        let caller = Caller::new(Commands(Arc::clone(wire)), Arc::clone(&open));
        Arc::new(Self { info, open, caller, heartbeat_source, queries: AtomicU64::new(0) })
    }
}

impl Engine for Session {
    fn info(&self) -> &EngineInfo {
        &self.info
    }

    fn report(&self) -> EngineReport {
        self.open.report()
    }

    fn heartbeats(&self) -> Option<Heartbeats> {
        let received = self.open.heartbeats();
        Some(match self.heartbeat_source? {
            HeartbeatSource::AsReceived => received,
            HeartbeatSource::Always => {
                let count = self.queries.fetch_add(1, Ordering::Relaxed) + 1;
                Heartbeats { received: count, newest: Heartbeat { working: false, ..received.newest } }
            }
        })
    }

    fn follow_cache(&self, follower: Arc<dyn CacheFollower>) {
        self.caller.follow_cache(follower);
    }

    fn is_alive(&self) -> bool {
        self.open.is_alive()
    }

    fn prep_recv(&self, request: &GenerateRequest, end: u32) -> BoxFuture<'static, Result<Reservation, ServeError>> {
        self.caller.prep_recv(request, end, None)
    }

    fn remote_send(
        &self,
        request: &GenerateRequest,
        to: &Destination,
        range: TokenRange,
    ) -> BoxFuture<'static, Result<Sent, ServeError>> {
        self.caller.remote_send(request, to, range)
    }

    fn start_generate(
        &self,
        request: GenerateRequest,
        handoff: Option<(Reservation, Option<Sent>)>,
    ) -> BoxFuture<'static, Result<TokenStream, ServeError>> {
        ready(self.caller.start_generate(request, handoff)).boxed()
    }
}
