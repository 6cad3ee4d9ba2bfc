//! One attempt at a request, for which a router finds the engines.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use baton_core::{Choice, EngineEvent, FailedEvent, GenerateRequest, RequestId, ServeError, TokenEvent};
use baton_protocol::TokenStream;
use baton_router::{Pick, Roster};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use tokio::sync::{mpsc, oneshot};

use crate::engines::{Engine, Engines};
use crate::error::{exception, failure, serve_error};
use crate::event_loop::RouterLoop;
use crate::leg::{Chunk, Control, Leg, Order};
use crate::request::{AttemptKey, Request};

/// The engines that are ready for an attempt.
#[pyclass(frozen)]
pub(crate) struct Fleet {
    roster: Arc<Roster>,
    router_loop: Arc<RouterLoop>,
}

/// A request on its way through a router. It ends with the leg that is served, or with an exception.
#[pyclass(frozen)]
pub(crate) struct Attempt {
    #[pyo3(get)]
    request: Py<Request>,
    #[pyo3(get)]
    fleet: Py<Fleet>,
    outcome: Arc<Outcome>,
}

pub(crate) struct Outcome {
    router: String,
    key: AttemptKey,
    request: GenerateRequest,
    router_loop: Arc<RouterLoop>,
    /// The asyncio task in which the router works.
    task: Mutex<Option<Py<PyAny>>>,
    progress: Mutex<Progress>,
}

enum Progress {
    Begun(Answering),
    PassingOn(Passing),
    Ended,
}

/// Chunks of legs that the router reads, on their way to the client.
struct Passing {
    pick: Pick,
    events: mpsc::UnboundedSender<EngineEvent>,
    /// Of the leg that the last chunk came from.
    control: Control,
    /// Choices that the client waits for.
    open: BTreeSet<Choice>,
}

type Answering = oneshot::Sender<Result<baton_router::Leg, ServeError>>;

pub(crate) type Answer = oneshot::Receiver<Result<baton_router::Leg, ServeError>>;

impl Outcome {
    pub(crate) fn new(router: &str, request: GenerateRequest, router_loop: Arc<RouterLoop>) -> (Arc<Self>, Answer) {
        let (answer, answered) = oneshot::channel();
        let outcome = Self {
            router: router.to_owned(),
            key: AttemptKey::next(),
            request,
            router_loop,
            task: Mutex::new(None),
            progress: Mutex::new(Progress::Begun(answer)),
        };
        (Arc::new(outcome), answered)
    }

    pub(crate) fn fail(&self, error: ServeError) {
        match self.leave() {
            // A relay that is gone needs no answer.
            Progress::Begun(answer) => drop(answer.send(Err(error))),
            Progress::PassingOn(passing) => {
                let (request, attempt) = (self.request.id, self.request.attempt);
                let _ = passing.events.send(EngineEvent::Failed(FailedEvent { request, attempt, error }));
            }
            Progress::Ended => {}
        }
    }

    /// The client needs nothing more.
    pub(crate) fn cancel(self: &Arc<Self>) {
        drop(self.leave());
        let this = Arc::clone(self);
        self.router_loop.run(move |py| {
            let task = this.task.lock().unwrap_or_else(PoisonError::into_inner).take();
            if let Some(task) = task
                && let Err(error) = task.call_method0(py, "cancel")
            {
                error.write_unraisable(py, None);
            }
        });
    }

    fn lock(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is sent or dropped afterwards may come back here: the lock is free again.
    fn leave(&self) -> Progress {
        std::mem::replace(&mut *self.lock(), Progress::Ended)
    }

    fn check_own(&self, key: AttemptKey) -> PyResult<()> {
        match key == self.key {
            true => Ok(()),
            false => Err(PyRuntimeError::new_err("this is of another request, or of an earlier attempt at this one")),
        }
    }

    fn pass_on(self: &Arc<Self>, chunk: &Chunk) -> PyResult<()> {
        self.check_own(chunk.key)?;
        let events = std::mem::take(&mut *chunk.events.lock().unwrap_or_else(PoisonError::into_inner));
        if let Some((answer, leg)) = self.first_of(chunk) {
            // Where the relay is gone, dropping the leg ends this attempt.
            drop(answer.send(Ok(leg)));
        }
        let mut progress = self.lock();
        let Progress::PassingOn(passing) = &mut *progress else { return Ok(()) };
        if !passing.pick.is_exact_with(&chunk.pick) {
            let message = "chunks of engines whose logits differ cannot be one answer";
            return Err(PyRuntimeError::new_err(message));
        }
        passing.control = chunk.control.clone();
        for event in events {
            match &event {
                EngineEvent::Token(TokenEvent { choice, finish: Some(_), .. }) => _ = passing.open.remove(choice),
                // Whether the attempt has failed with it is for the router to say.
                EngineEvent::Failed(_) => continue,
                _ => {}
            }
            // The relay may have all that it needs.
            let _ = passing.events.send(event);
        }
        Ok(())
    }

    /// With the first chunk there is a leg to answer with.
    fn first_of(self: &Arc<Self>, chunk: &Chunk) -> Option<(Answering, baton_router::Leg)> {
        let mut progress = self.lock();
        if !matches!(&*progress, Progress::Begun(_)) {
            return None;
        }
        let (passing, stream) = self.passing(chunk);
        let Progress::Begun(answer) = std::mem::replace(&mut *progress, Progress::PassingOn(passing)) else {
            return None;
        };
        Some((answer, baton_router::Leg::passed_on(chunk.pick.clone(), stream)))
    }

    fn passing(self: &Arc<Self>, chunk: &Chunk) -> (Passing, TokenStream) {
        let (events, received) = mpsc::unbounded_channel();
        let (ended, dropped) = (Arc::clone(self), Arc::clone(self));
        let stream = TokenStream::new(self.request.id, received, move |_: RequestId| dropped.client_has_enough())
            .with_end_choice(move |choice| ended.end_choice(choice));
        let open = self.request.unfinished_choices().collect();
        (Passing { pick: chunk.pick.clone(), events, control: chunk.control.clone(), open }, stream)
    }

    fn end_choice(&self, choice: Choice) {
        if let Progress::PassingOn(passing) = &mut *self.lock() {
            passing.open.remove(&choice);
            let _ = passing.control.send(Order::EndChoice(choice));
        }
    }

    /// Where every choice has ended, the router sees the end of its leg, and comes to its own. Otherwise it is cancelled.
    fn client_has_enough(self: &Arc<Self>) {
        let Progress::PassingOn(passing) = self.leave() else { return };
        if passing.open.is_empty() {
            let _ = passing.control.send(Order::End);
        } else {
            self.cancel();
        }
    }
}

impl Attempt {
    pub(crate) fn new(py: Python<'_>, roster: Arc<Roster>, outcome: Arc<Outcome>) -> PyResult<Self> {
        let router_loop = Arc::clone(&outcome.router_loop);
        Ok(Self {
            request: Py::new(py, Request::new(outcome.request.clone(), outcome.key))?,
            fleet: Py::new(py, Fleet { roster, router_loop })?,
            outcome,
        })
    }
}

#[pymethods]
impl Attempt {
    /// The task to cancel when the client needs nothing more; `None` when it is done.
    fn runs_in(&self, task: Option<Py<PyAny>>) {
        *self.outcome.task.lock().unwrap_or_else(PoisonError::into_inner) = task;
    }

    /// The client gets this leg's tokens; none of them passes through Python.
    fn serve(&self, leg: &Leg) -> PyResult<()> {
        self.outcome.check_own(leg.key())?;
        let leg = leg.take()?;
        if let Progress::Begun(answer) = self.outcome.leave() {
            drop(answer.send(Ok(leg)));
        }
        Ok(())
    }

    /// The client gets this chunk's tokens next.
    fn pass_on(&self, chunk: &Chunk) -> PyResult<()> {
        self.outcome.pass_on(chunk)
    }

    /// The attempt has ended. It is followed by another one if the exception says so.
    fn fail(&self, py: Python<'_>, exception: Bound<'_, PyAny>) {
        let error = serve_error(py, &self.outcome.router, &PyErr::from_value(exception));
        self.outcome.fail(error);
    }

    /// Of a router that has come to its end: what it left undone is an error.
    fn end(&self) {
        let router = &self.outcome.router;
        let is_open = match &*self.outcome.lock() {
            Progress::Begun(answer) => !answer.is_closed(),
            Progress::PassingOn(passing) => !passing.open.is_empty(),
            Progress::Ended => false,
        };
        if is_open {
            tracing::error!("the router {router} ended before the request had");
            self.outcome.fail(failure(format!("the router {router} ended before the request had")));
        }
    }
}

#[pymethods]
impl Fleet {
    /// All of them, whatever their roles.
    #[getter]
    fn engines(&self) -> Engines {
        self.of(self.roster.engines())
    }

    /// Those that compute prompts for others.
    fn prefill(&self) -> Engines {
        self.of(self.roster.prefill())
    }

    /// Those that generate.
    fn decode(&self) -> Engines {
        self.of(self.roster.decode())
    }

    /// Those that can take a whole request: all that generate or, when none of them is there, all that are.
    fn serving(&self) -> Engines {
        self.of(self.roster.serving())
    }

    /// The engine with this id or name. Raises `EngineError` while it is not ready.
    fn engine(&self, id_or_name: &Bound<'_, PyAny>) -> PyResult<Engine> {
        let (id, name) = (id_or_name.extract::<usize>().ok(), id_or_name.extract::<String>().ok());
        let engines = self.engines();
        let wanted = |pick: &&Pick| Some(pick.id().0) == id || name.as_deref() == Some(pick.name());
        let found = engines.candidates.iter().find(wanted).map(|pick| engines.engine(pick));
        found.ok_or_else(|| exception(ServeError::engine(format!("engine {id_or_name} is not ready"))))
    }
}

impl Fleet {
    fn of(&self, candidates: baton_router::Candidates) -> Engines {
        Engines { candidates, router_loop: Arc::clone(&self.router_loop) }
    }
}
