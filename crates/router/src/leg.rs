//! A request under way on an engine, perhaps fed by another.

use std::sync::Arc;

use baton_core::{Choice, EngineEvent};
use baton_protocol::TokenStream;
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Fuse, pending};

use crate::decision::{Explanation, Placement};
use crate::engine::EngineId;
use crate::load::LoadGuard;
use crate::pick::{Pick, Sending};

/// Dropping it aborts the request wherever it is, and gives its load back.
pub struct Leg {
    engine: Pick,
    stream: TokenStream,
    /// Resolves when the engine shows no sign of life.
    hung: Fuse<BoxFuture<'static, ()>>,
    /// Absent where the legs that are passed on hold it.
    _load: Option<LoadGuard>,
    /// Until the prompt is computed.
    prefilling: Option<LoadGuard>,
    sending: Option<Sending>,
    /// Prompt tokens that the engine should find in its prefix cache; `None` when KV comes from another.
    expected_cached: Option<u32>,
    explanation: Option<Explanation>,
}

impl Leg {
    /// Events of legs on `engine` and ones like it, passed on by what reads them.
    pub fn passed_on(engine: Pick, stream: TokenStream) -> Self {
        let hung = pending().boxed().fuse();
        Self {
            engine,
            stream,
            hung,
            _load: None,
            prefilling: None,
            sending: None,
            expected_cached: None,
            explanation: None,
        }
    }

    pub(crate) fn new(engine: Pick, stream: TokenStream, load: LoadGuard, prefilling: LoadGuard) -> Self {
        let pick = engine.clone();
        let hung = async move { pick.hung().await }.boxed().fuse();
        Self {
            engine,
            stream,
            hung,
            _load: Some(load),
            prefilling: Some(prefilling),
            sending: None,
            expected_cached: None,
            explanation: None,
        }
    }

    /// With its prompt's event the estimate and the truth are counted.
    pub(crate) fn expecting(self, cached_tokens: Option<u32>) -> Self {
        Self { expected_cached: cached_tokens, ..self }
    }

    /// The KV that the request waits for comes from here. When that ends short of all of it, the engine computes the rest.
    #[must_use]
    pub fn fed_by(mut self, sending: Sending) -> Self {
        self.sending = Some(sending);
        self
    }

    /// Why it is as it is. Without this, people see only which engine generates.
    #[must_use]
    pub fn explained(self, explanation: Explanation) -> Self {
        Self { explanation: Some(explanation), ..self }
    }

    /// The prompt's beginning is computed elsewhere: not so where `prep_recv` had no room, or nothing was missing.
    pub(crate) fn is_fed(&self) -> bool {
        self.sending.is_some()
    }

    pub(crate) fn take_explanation(&mut self) -> Explanation {
        let engine = || Explanation::of(Placement::Whole { engine: Arc::clone(&self.engine.name) });
        self.explanation.take().unwrap_or_else(engine)
    }

    pub fn engine(&self) -> EngineId {
        self.engine.id
    }

    pub fn pick(&self) -> &Pick {
        &self.engine
    }

    /// Nothing more is wanted of this choice.
    pub fn end_choice(&mut self, choice: Choice) {
        self.stream.end_choice(choice);
    }

    /// `None` when the engine has vanished, shows no sign of life, or has sent everything.
    pub async fn next(&mut self) -> Option<EngineEvent> {
        let Self { stream, hung, sending, .. } = self;
        let event = loop {
            tokio::select! {
                biased;
                event = stream.next() => break event,
                () = &mut *hung => break None,
                // Whether all of it is verified or not: the engine knows what it has, and need not wait any longer.
                () = end_of(sending) => {
                    *sending = None;
                    stream.expect_no_more();
                }
            }
        };
        self.seen(event)
    }

    fn seen(&mut self, event: Option<EngineEvent>) -> Option<EngineEvent> {
        if let Some(EngineEvent::Prompt(prompt)) = &event {
            if let Some(expected) = self.expected_cached.take() {
                self.engine.counters.cached_tokens_expected.add_many(expected.into());
                self.engine.counters.cached_tokens_found.add_many(prompt.cached_tokens.into());
            }
            self.prefilling = None;
            // All was received, or is not waited for any more: a sender that goes on does so in vain.
            self.sending = None;
        }
        event
    }
}

async fn end_of(sending: &mut Option<Sending>) {
    match sending {
        Some(sending) => drop(sending.await),
        None => pending().await,
    }
}
