//! An engine as a router sees it: the real calls over a simulated connection.

use std::sync::Arc;

use baton_core::{EngineInfo, EngineReport, GenerateRequest, ServeError, TokenRange};
use baton_protocol::{Caller, Destination, Engine, OpenRequests, Reservation, Sent, TokenStream};
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, ready};

use crate::wire::{Commands, Wire};

pub(crate) struct Session {
    info: EngineInfo,
    pub(crate) open: Arc<OpenRequests>,
    pub(crate) caller: Caller<Commands>,
}

impl Session {
    pub(crate) fn new(info: EngineInfo, wire: &Arc<Wire>) -> Arc<Self> {
        let open = Arc::new(OpenRequests::default());
        let caller = Caller::new(Commands(Arc::clone(wire)), Arc::clone(&open));
        Arc::new(Self { info, open, caller })
    }
}

impl Engine for Session {
    fn info(&self) -> &EngineInfo {
        &self.info
    }

    fn report(&self) -> EngineReport {
        self.open.report()
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
