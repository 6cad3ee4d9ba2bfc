//! The one seam between routers and engines. A session client, an in-process engine and a simulated engine all stand
//! behind [`Engine`]; a router cannot tell them apart.

use baton_core::{EngineEvent, EngineInfo, EngineReport, GenerateRequest, RequestId, ServeError};
use futures_util::future::BoxFuture;
use tokio::sync::mpsc;

pub trait Engine: Send + Sync {
    fn info(&self) -> &EngineInfo;

    /// The newest report this side has seen.
    fn report(&self) -> EngineReport;

    /// `false` once the engine is known to be gone: it never comes back under this handle.
    fn is_alive(&self) -> bool;

    /// Computes the prompt, then decodes. Events arrive on the stream; dropping it aborts the request within one step.
    fn start_generate(&self, request: GenerateRequest) -> BoxFuture<'_, Result<TokenStream, ServeError>>;
}

/// Events of one request, in order. Ends after the last choice's last token (with nothing to generate: after `Prompt`) or
/// after `Failed`; an end without any of these means that the engine vanished.
pub struct TokenStream {
    events: mpsc::UnboundedReceiver<EngineEvent>,
    _abort: AbortOnDrop,
}

impl TokenStream {
    /// `on_drop` is called once, when the stream is dropped, whether or not the request has ended.
    pub fn new(
        request: RequestId,
        events: mpsc::UnboundedReceiver<EngineEvent>,
        on_drop: impl FnOnce(RequestId) + Send + Sync + 'static,
    ) -> Self {
        Self { events, _abort: AbortOnDrop(Some((request, Box::new(on_drop)))) }
    }

    pub async fn next(&mut self) -> Option<EngineEvent> {
        self.events.recv().await
    }
}

type OnDrop = Box<dyn FnOnce(RequestId) + Send + Sync>;

struct AbortOnDrop(Option<(RequestId, OnDrop)>);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        if let Some((request, on_drop)) = self.0.take() {
            on_drop(request);
        }
    }
}
