//! A request under way on an engine: given to the client as it is, or read chunk by chunk by a router that passes it on.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use baton_core::{Choice, EngineEvent, FailedEvent, FinishReason, GenerateRequest, ServeError, TokenEvent};
use baton_router::Pick;
use baton_text::{ControlTokens, Detokenizer, TextStart};
use futures_util::FutureExt;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use tokio::sync::{Mutex as AsyncMutex, mpsc};

use crate::error::exception;
use crate::event_loop::{EventLoop, RouterLoop};
use crate::interrupt::runtime;
use crate::request::AttemptKey;
use crate::tokenizer::Tokenizer;

/// What `start_generate` gives. The request is aborted with the last reference to this object, unless it is served to the client.
#[pyclass(frozen)]
pub(crate) struct Leg {
    engine: usize,
    leg: Mutex<Option<baton_router::Leg>>,
    request: GenerateRequest,
    key: AttemptKey,
}

/// Reads a leg's events, several at a time, with their text.
#[pyclass(frozen)]
pub(crate) struct Reader {
    source: Arc<Source>,
    router_loop: Arc<RouterLoop>,
}

struct Source {
    pick: Pick,
    request: GenerateRequest,
    key: AttemptKey,
    events: AsyncMutex<mpsc::UnboundedReceiver<EngineEvent>>,
    control: Control,
    text: Mutex<BTreeMap<Choice, Detokenizer>>,
    tokenizer: Tokenizer,
}

/// Reaches the leg while somebody reads it.
pub(crate) type Control = mpsc::UnboundedSender<Order>;

pub(crate) enum Order {
    EndChoice(Choice),
    /// Nothing more is wanted: the reader sees the end.
    End,
}

/// What has come since the last chunk.
#[pyclass(frozen)]
pub(crate) struct Chunk {
    pub(crate) key: AttemptKey,
    pub(crate) pick: Pick,
    pub(crate) control: Control,
    /// Until they are passed on.
    pub(crate) events: Mutex<Vec<EngineEvent>>,
    /// Per choice: its index, its text and why it ended, if it has.
    choices: Vec<(u32, String, Option<&'static str>)>,
    failure: Option<ServeError>,
}

impl Leg {
    pub(crate) fn new(leg: baton_router::Leg, request: GenerateRequest, key: AttemptKey) -> Self {
        Self { engine: leg.engine().0, leg: Mutex::new(Some(leg)), request, key }
    }

    pub(crate) fn key(&self) -> AttemptKey {
        self.key
    }

    pub(crate) fn take(&self) -> PyResult<baton_router::Leg> {
        let leg = self.leg.lock().unwrap_or_else(PoisonError::into_inner).take();
        leg.ok_or_else(|| PyRuntimeError::new_err("this leg is read, or served, already"))
    }
}

#[pymethods]
impl Leg {
    /// The id of the engine that generates.
    #[getter]
    fn engine(&self) -> usize {
        self.engine
    }

    /// For a router that sees what is generated.
    fn read(&self, tokenizer: &Tokenizer, event_loop: &EventLoop) -> PyResult<Reader> {
        let leg = self.take()?;
        let (sender, events) = mpsc::unbounded_channel();
        let (control, orders) = mpsc::unbounded_channel();
        let source = Source {
            pick: leg.pick().clone(),
            request: self.request.clone(),
            key: self.key,
            events: AsyncMutex::new(events),
            control,
            text: Mutex::default(),
            tokenizer: tokenizer.clone(),
        };
        runtime()?.spawn(pump(leg, self.request.clone(), sender, orders));
        Ok(Reader { source: Arc::new(source), router_loop: event_loop.share() })
    }
}

/// Ends with the leg, or when nothing more is wanted. An end that is not the request's own is reported as a failure.
async fn pump(
    mut leg: baton_router::Leg,
    request: GenerateRequest,
    events: mpsc::UnboundedSender<EngineEvent>,
    mut orders: mpsc::UnboundedReceiver<Order>,
) {
    let mut open: BTreeSet<_> = request.unfinished_choices().collect();
    let mut prompt_missing = true;
    loop {
        let event = tokio::select! {
            biased;
            order = orders.recv() => match order {
                Some(Order::EndChoice(choice)) => {
                    open.remove(&choice);
                    leg.end_choice(choice);
                    continue;
                }
                Some(Order::End) | None => return,
            },
            event = leg.next() => event,
        };
        let failed = matches!(event, Some(EngineEvent::Failed(_)));
        match &event {
            Some(EngineEvent::Prompt(_)) => prompt_missing = false,
            Some(EngineEvent::Token(TokenEvent { choice, finish: Some(_), .. })) => {
                open.remove(choice);
            }
            _ => {}
        }
        let complete = open.is_empty() && !prompt_missing;
        let event = match event {
            None if complete => return,
            None => EngineEvent::Failed(FailedEvent {
                request: request.id,
                attempt: request.attempt,
                error: ServeError::engine(format!("engine {} vanished", leg.pick().name())),
            }),
            Some(event) => event,
        };
        let vanished = matches!(event, EngineEvent::Failed(_));
        if events.send(event).is_err() || failed || vanished || complete {
            return;
        }
    }
}

#[pymethods]
impl Reader {
    /// The next chunk, or `None` after the last one.
    fn next<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let source = Arc::clone(&self.source);
        let call = async move { Ok(source.chunk().await) };
        self.router_loop.awaitable(py, call, |py, chunk: Option<Chunk>| match chunk {
            Some(chunk) => Ok(Py::new(py, chunk)?.into_any()),
            None => Ok(py.None()),
        })
    }

    /// Aborts the request, unless it has ended. The next chunk is `None`.
    fn close(&self) {
        // A leg that has ended reads no more orders.
        let _ = self.source.control.send(Order::End);
    }
}

impl Source {
    /// At least one token, unless there is none to come, and all that are there.
    async fn chunk(&self) -> Option<Chunk> {
        let mut waiting = self.events.lock().await;
        let mut events = Vec::new();
        while !events.iter().any(|event| !matches!(event, EngineEvent::Prompt(_))) {
            match waiting.recv().await {
                Some(event) => events.push(event),
                None if events.is_empty() => return None,
                None => break,
            }
        }
        while let Some(Some(event)) = waiting.recv().now_or_never() {
            events.push(event);
        }
        Some(self.chunk_of(events))
    }

    fn chunk_of(&self, events: Vec<EngineEvent>) -> Chunk {
        let mut choices: BTreeMap<Choice, (String, Option<&'static str>)> = BTreeMap::new();
        let mut failure = None;
        let mut texts = self.text.lock().unwrap_or_else(PoisonError::into_inner);
        for event in &events {
            match event {
                EngineEvent::Token(event) => {
                    let (text, finish) = choices.entry(event.choice).or_default();
                    let detokenizer = texts.entry(event.choice).or_insert_with(|| self.detokenizer());
                    detokenizer.push(event.token, text);
                    if let Some(reason) = event.finish {
                        detokenizer.finish(text);
                        *finish = Some(name(reason));
                    }
                }
                EngineEvent::Failed(event) => failure = Some(event.error.clone()),
                EngineEvent::Prompt(_) | EngineEvent::Reserved(_) | EngineEvent::Sent(_) => {}
            }
        }
        if choices.is_empty() && failure.is_none() {
            // There was nothing to generate.
            choices = self.request.choices().map(|choice| (choice, (String::new(), Some("length")))).collect();
        }
        let choices = choices.into_iter().map(|(choice, (text, finish))| (choice.0, text, finish)).collect();
        Chunk {
            key: self.key,
            pick: self.pick.clone(),
            control: self.control.clone(),
            events: Mutex::new(events),
            choices,
            failure,
        }
    }

    fn detokenizer(&self) -> Detokenizer {
        let vocabulary = self.tokenizer.vocabulary();
        let start = TextStart::after(&self.request.prompt, vocabulary);
        Detokenizer::new(Arc::clone(vocabulary), ControlTokens::Hide, start)
    }
}

#[pymethods]
impl Chunk {
    #[getter]
    fn choices(&self) -> Vec<(u32, String, Option<&'static str>)> {
        self.choices.clone()
    }

    /// The exception for what ended the request here, if something has.
    #[getter]
    fn failure(&self, py: Python<'_>) -> Option<Py<PyAny>> {
        let error = self.failure.clone()?;
        Some(exception(error).into_value(py).into_any())
    }

    /// Whether that need not be the end of the request.
    #[getter]
    fn may_go_on(&self) -> bool {
        self.failure.as_ref().is_some_and(|error| error.retry != baton_core::Retry::Never)
    }
}

fn name(reason: FinishReason) -> &'static str {
    match reason {
        FinishReason::StopToken => "stop",
        FinishReason::Length => "length",
    }
}
