//! A request under way on an engine, perhaps fed by another.

use baton_core::{Choice, EngineEvent};
use baton_protocol::TokenStream;

use crate::fleet::EngineId;
use crate::load::LoadGuard;
use crate::pick::{Pick, Sending};

/// Dropping it aborts the request wherever it is, and gives its load back.
pub struct Leg {
    engine: Pick,
    stream: TokenStream,
    _load: LoadGuard,
    /// Until the prompt is computed.
    prefilling: Option<LoadGuard>,
    sending: Option<Sending>,
}

impl Leg {
    pub(crate) fn new(engine: Pick, stream: TokenStream, load: LoadGuard, prefilling: LoadGuard) -> Self {
        Self { engine, stream, _load: load, prefilling: Some(prefilling), sending: None }
    }

    /// The KV that the request waits for comes from here. When that ends short of all of it, the engine computes the rest.
    #[must_use]
    pub fn fed_by(mut self, sending: Sending) -> Self {
        self.sending = Some(sending);
        self
    }

    pub fn engine(&self) -> EngineId {
        self.engine.id
    }

    pub(crate) fn pick(&self) -> &Pick {
        &self.engine
    }

    pub(crate) fn end_choice(&mut self, choice: Choice) {
        self.stream.end_choice(choice);
    }

    /// `None` when the engine has vanished, or has nothing more to say.
    pub async fn next(&mut self) -> Option<EngineEvent> {
        while let Some(sending) = &mut self.sending {
            tokio::select! {
                biased;
                event = self.stream.next() => return self.seen(event),
                // Whether all of it is verified or not: the engine knows what it has, and need not wait any longer.
                _ended = sending => {
                    self.sending = None;
                    self.stream.expect_no_more();
                }
            }
        }
        let event = self.stream.next().await;
        self.seen(event)
    }

    fn seen(&mut self, event: Option<EngineEvent>) -> Option<EngineEvent> {
        if matches!(event, Some(EngineEvent::Prompt(_))) {
            self.prefilling = None;
            // All was received, or is not waited for any more: whoever still sends does so in vain.
            self.sending = None;
        }
        event
    }
}
