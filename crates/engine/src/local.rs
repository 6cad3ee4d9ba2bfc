//! An engine in the caller's own process, behind the same trait as one at the other end of a connection.

use std::sync::Arc;
use std::time::Duration;

use baton_core::{EngineInfo, EngineReport, Fault, GenerateRequest, Retry, ServeError, TokenRange};
use baton_protocol::{
    CacheFollower, Caller, Command, CommandSink, Destination, Engine, HostedEngine, OpenRequests, Reservation, Sent,
    SessionId, StepReply, TokenStream,
};
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, ready};

use crate::handle::EngineHandle;
use crate::outbox::Outbox;

/// One session of an engine. Dropping it aborts its requests.
pub struct LocalEngine {
    handle: EngineHandle,
    session: SessionId,
    caller: Caller<LocalSession>,
}

#[derive(Clone)]
struct LocalSession {
    handle: EngineHandle,
    session: SessionId,
}

impl LocalEngine {
    pub fn new(handle: EngineHandle) -> Self {
        let open = Arc::new(OpenRequests::default());
        let session = handle.open_session(Delivery(Arc::clone(&open)));
        let caller = Caller::new(LocalSession { handle: handle.clone(), session }, open);
        Self { handle, session, caller }
    }
}

impl Engine for LocalEngine {
    fn info(&self) -> &EngineInfo {
        self.handle.info()
    }

    fn report(&self) -> EngineReport {
        EngineReport { own: self.caller.report().own, ..self.handle.report() }
    }

    fn follow_cache(&self, follower: Arc<dyn CacheFollower>) {
        self.caller.follow_cache(follower);
    }

    fn is_alive(&self) -> bool {
        self.handle.is_alive()
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

impl HostedEngine for LocalEngine {
    fn prep_recv_leased(
        &self,
        request: &GenerateRequest,
        end: u32,
        lease: Duration,
    ) -> BoxFuture<'static, Result<Reservation, ServeError>> {
        let lease_ms = u32::try_from(lease.as_millis()).unwrap_or(u32::MAX);
        self.caller.prep_recv(request, end, Some(lease_ms))
    }

    fn audit(&self) -> BoxFuture<'static, Result<(), ServeError>> {
        let handle = self.handle.clone();
        let audited = async move {
            handle.audit().await?.map_err(|discrepancy| {
                let message = discrepancy.to_string();
                ServeError { fault: Fault::Engine, retry: Retry::Never, message, param: None }
            })
        };
        audited.boxed()
    }
}

impl CommandSink for LocalSession {
    fn send(&self, command: Command) -> Result<(), ServeError> {
        self.handle.send(self.session, command)
    }
}

impl Drop for LocalEngine {
    fn drop(&mut self) {
        self.handle.close_session(self.session);
    }
}

/// Hands events to their streams right on the loop's thread; streams have no bound, so that never waits.
struct Delivery(Arc<OpenRequests>);

impl Outbox for Delivery {
    fn deliver(&mut self, reply: StepReply) -> bool {
        self.0.deliver(reply);
        true
    }
}

impl Drop for Delivery {
    fn drop(&mut self) {
        self.0.end();
    }
}
