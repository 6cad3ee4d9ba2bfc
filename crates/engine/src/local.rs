//! An engine in the caller's own process, behind the same trait as one at the other end of a connection.

use std::sync::Arc;

use baton_core::{EngineInfo, EngineReport, GenerateRequest, ServeError};
use baton_protocol::{Command, Engine, OpenRequests, SessionId, StepReply, TokenStream};
use futures_util::future::BoxFuture;

use crate::handle::EngineHandle;
use crate::outbox::Outbox;

/// One session of an engine. Dropping it aborts what it asked for.
pub struct LocalEngine {
    handle: EngineHandle,
    session: SessionId,
    open: Arc<OpenRequests>,
}

impl LocalEngine {
    pub fn new(handle: EngineHandle) -> Self {
        let open = Arc::new(OpenRequests::default());
        let session = handle.open_session(Delivery(Arc::clone(&open)));
        Self { handle, session, open }
    }

    fn start(&self, request: GenerateRequest) -> Result<TokenStream, ServeError> {
        let (id, attempt) = (request.id, request.attempt);
        let events = self.open.register(&request)?;
        if let Err(error) = self.handle.send(self.session, Command::Generate(Box::new(request))) {
            self.open.forget(id, attempt);
            return Err(error);
        }
        let (open, handle, session) = (Arc::clone(&self.open), self.handle.clone(), self.session);
        Ok(TokenStream::new(id, events, move |id| {
            if open.forget(id, attempt) {
                // Refused only when the engine has ended, or is flooded with aborts of requests it does not have.
                let _ = handle.send(session, Command::Abort(id));
            }
        }))
    }
}

impl Engine for LocalEngine {
    fn info(&self) -> &EngineInfo {
        self.handle.info()
    }

    fn report(&self) -> EngineReport {
        self.handle.report()
    }

    fn is_alive(&self) -> bool {
        self.handle.is_alive()
    }

    fn start_generate(&self, request: GenerateRequest) -> BoxFuture<'_, Result<TokenStream, ServeError>> {
        let started = self.start(request);
        Box::pin(async { started })
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
