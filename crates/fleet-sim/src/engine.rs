//! An engine as the router sees it: the real calls, with a latency in each direction.

use std::sync::Arc;
use std::time::Duration;

use baton_core::{EngineInfo, EngineReport, GenerateRequest, ServeError, TokenRange};
use baton_engine::Outbox;
use baton_protocol::{
    CacheFollower, Caller, Command, CommandSink, Destination, Engine, OpenRequests, Reservation, Sent, StepReply,
    TokenStream,
};
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, ready};

use crate::clock::Clock;
use crate::event::{EngineIndex, Event, Input};

pub(crate) struct SimulatedEngine {
    info: EngineInfo,
    pub(crate) open: Arc<OpenRequests>,
    caller: Caller<Connection>,
}

/// Both directions between the router and one engine.
#[derive(Clone)]
pub(crate) struct Connection {
    pub(crate) clock: Arc<Clock>,
    pub(crate) engine: EngineIndex,
    pub(crate) latency: Duration,
}

impl SimulatedEngine {
    pub(crate) fn new(info: EngineInfo, connection: Connection) -> Self {
        let open = Arc::new(OpenRequests::default());
        Self { info, caller: Caller::new(connection, Arc::clone(&open)), open }
    }
}

impl CommandSink for Connection {
    fn send(&self, command: Command) -> Result<(), ServeError> {
        let arrives = self.clock.now() + self.latency;
        self.clock.at(arrives, Event::Input(self.engine, Input::Command(command, arrives)));
        Ok(())
    }
}

impl Outbox for Connection {
    fn deliver(&mut self, reply: StepReply) -> bool {
        self.clock.after(self.latency, Event::Reply(self.engine, Box::new(reply)));
        true
    }
}

impl Engine for SimulatedEngine {
    fn info(&self) -> &EngineInfo {
        &self.info
    }

    fn report(&self) -> EngineReport {
        self.open.report()
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
