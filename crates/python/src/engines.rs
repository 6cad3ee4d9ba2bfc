//! Engines as a router sees them, and the three calls to them.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use baton_core::{EngineReport, Fault, Retry, ServeError, TokenRange};
use baton_protocol::{Destination, Sent};
use baton_router::{Candidates, EngineId, Pick, Reserved};
use futures_util::FutureExt;
use futures_util::future::Shared;
use pyo3::exceptions::{PyIndexError, PyRuntimeError, PyValueError};
use pyo3::prelude::*;

use crate::error::exception;
use crate::event_loop::RouterLoop;
use crate::leg::Leg;
use crate::request::Request;

/// An engine that is ready.
#[pyclass(frozen)]
pub(crate) struct Engine {
    pick: Pick,
    router_loop: Arc<RouterLoop>,
}

/// Some engines that are ready, ascending by id.
#[pyclass(frozen)]
pub(crate) struct Engines {
    pub(crate) candidates: Candidates,
    pub(crate) router_loop: Arc<RouterLoop>,
}

/// Pages of an engine that wait for KV. They are given back with the last reference to this object, unless a request was started
/// with them. Without room it is empty: nothing is sent to it, and the engine computes the prompt.
#[pyclass(frozen)]
pub(crate) struct Reservation {
    engine: EngineId,
    destination: Destination,
    reserved: Mutex<Pages>,
}

enum Pages {
    Reserved(Reserved),
    Empty,
    /// Given back, or used up.
    Gone,
}

/// KV on its way from one engine to another. It is aborted when nothing awaits it any more: neither this object, nor a call, nor a
/// request that it feeds.
#[pyclass(frozen)]
pub(crate) struct Sending {
    sending: Shared<baton_router::Sending>,
    router_loop: Arc<RouterLoop>,
}

#[pymethods]
impl Engine {
    /// Its place in the deployment; stays the same over restarts.
    #[getter]
    fn id(&self) -> usize {
        self.pick.id().0
    }

    #[getter]
    fn name(&self) -> &str {
        self.pick.name()
    }

    /// "mixed", "prefill" or "decode".
    #[getter]
    fn role(&self) -> &'static str {
        self.pick.role().name()
    }

    /// Requests that it has, of all routers.
    #[getter]
    fn sequences(&self) -> u32 {
        self.pick.sequences()
    }

    /// Prompt tokens that it has still to compute, of all routers.
    #[getter]
    fn prefill_tokens(&self) -> u64 {
        self.pick.prefill_tokens()
    }

    /// How much of the request's prompt it would take from its prefix cache, as far as is known.
    #[getter]
    fn cached_tokens(&self) -> u32 {
        self.pick.cached_tokens()
    }

    /// The share of its KV pages, 0 to 1, that a new request can have.
    #[getter]
    fn free_kv(&self) -> f64 {
        let EngineReport { load, .. } = self.pick.report();
        f64::from(load.pages_free + load.pages_cached) / f64::from(load.pages_total.max(1))
    }

    /// Whether KV can be handed from one to the other: their logits are equal bit by bit.
    fn pairs_with(&self, other: &Self) -> bool {
        self.pick.id() != other.pick.id() && self.pick.is_exact_with(&other.pick)
    }

    /// Reserves room for the KV of `prompt[:end]` as far as it is not cached. As in Python, -1 is the position of the last token.
    #[pyo3(signature = (request, end=-1))]
    fn prep_recv<'py>(&self, py: Python<'py>, request: &Request, end: i64) -> PyResult<Bound<'py, PyAny>> {
        let end = position("end", end, request)?;
        let (pick, request) = (self.pick.clone(), request.request.clone());
        let call = async move {
            let engine = pick.id();
            if request.needs_whole_prompt() {
                return Ok(Reservation::empty(engine, end));
            }
            match pick.prep_recv(&request, end).await {
                Ok(reserved) => Ok(Reservation::of(engine, reserved)),
                // No room to receive into, now or ever. In its queue the request is served in any case, if not as well.
                Err(full) if full.fault == Fault::Capacity && full.retry != Retry::Elsewhere => {
                    Ok(Reservation::empty(engine, end))
                }
                Err(error) => Err(error),
            }
        };
        self.router_loop.awaitable(py, call, |py, reservation| Ok(Py::new(py, reservation)?.into_any()))
    }

    /// Computes the KV of `prompt[:end]` and hands `prompt[begin:end]` over; by default what the reservation lacks. Begins at once.
    #[pyo3(signature = (request, to, begin=None, end=None))]
    fn remote_send(
        &self,
        request: &Request,
        to: &Reservation,
        begin: Option<i64>,
        end: Option<i64>,
    ) -> PyResult<Sending> {
        let range = to.range(request, begin, end)?;
        let sending = match range.is_empty() {
            true => nothing_to_send(),
            false => self.pick.remote_send(&request.request, &to.destination, range),
        };
        Ok(Sending::new(sending, &self.router_loop))
    }

    /// Computes what of the prompt is not there, then generates. `fed_by` brings the KV that `reservation` waits for; what does not
    /// come is computed here.
    #[pyo3(signature = (request, reservation=None, fed_by=None))]
    fn start_generate<'py>(
        &self,
        py: Python<'py>,
        request: &Request,
        reservation: Option<&Reservation>,
        fed_by: Option<&Sending>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let reserved = reservation.map_or(Ok(None), |reservation| reservation.take_for(self))?;
        let feeding = fed_by.map(|fed_by| fed_by.sending.clone());
        let (pick, key, request) = (self.pick.clone(), request.key, request.request.clone());
        let call = async move {
            let Some(reserved) = reserved else {
                return Ok(Leg::new(pick.start_generate(request.clone(), None).await?, request, key));
            };
            // Without a sender nothing will come, and all of the prompt is computed there.
            let feeding = feeding.unwrap_or_else(|| nothing_to_send().shared());
            let sent = match feeding.peek() {
                Some(Ok(sent)) => Some(*sent),
                _ if reserved.missing().is_none() => None,
                _ => {
                    let leg = pick.start_generate(request.clone(), Some((reserved, None))).await?;
                    return Ok(Leg::new(leg.fed_by(feeding.boxed()), request, key));
                }
            };
            Ok(Leg::new(pick.start_generate(request.clone(), Some((reserved, sent))).await?, request, key))
        };
        self.router_loop.awaitable(py, call, |py, leg| Ok(Py::new(py, leg)?.into_any()))
    }

    fn __repr__(&self) -> String {
        format!("<baton.Engine {} {:?}, {}>", self.id(), self.name(), self.role())
    }
}

impl Engines {
    pub(crate) fn engine(&self, pick: &Pick) -> Engine {
        Engine { pick: pick.clone(), router_loop: Arc::clone(&self.router_loop) }
    }

    fn of(&self, candidates: Candidates) -> Self {
        Self { candidates, router_loop: Arc::clone(&self.router_loop) }
    }
}

#[pymethods]
impl Engines {
    fn __len__(&self) -> usize {
        self.candidates.iter().len()
    }

    fn __getitem__(&self, index: isize) -> PyResult<Engine> {
        let length = self.candidates.iter().len();
        let index = if index < 0 { length.wrapping_add_signed(index) } else { index as usize };
        let pick = self.candidates.iter().nth(index).ok_or_else(|| PyIndexError::new_err("there are fewer engines"))?;
        Ok(self.engine(pick))
    }

    /// The one for which `key` gives the lowest value, as `min(engines, key=key)`. Raises `EngineError` when there is none.
    fn lowest(&self, py: Python<'_>, key: &Bound<'_, PyAny>) -> PyResult<Engine> {
        let mut lowest: Option<(Py<Engine>, Bound<'_, PyAny>)> = None;
        for pick in self.candidates.iter() {
            let engine = Py::new(py, self.engine(pick))?;
            let value = key.call1((engine.clone_ref(py),))?;
            if lowest.as_ref().map_or(Ok(true), |(_, least)| value.lt(least))? {
                lowest = Some((engine, value));
            }
        }
        let none = || exception(ServeError::engine("no such engine is ready"));
        let (engine, _) = lowest.ok_or_else(none)?;
        let engine = engine.get();
        Ok(Engine { pick: engine.pick.clone(), router_loop: Arc::clone(&engine.router_loop) })
    }

    /// The one with the least to do. Raises `EngineError` when there is none.
    fn least_loaded(&self) -> PyResult<Engine> {
        Ok(self.engine(&self.candidates.least_loaded().map_err(exception)?))
    }

    /// The first behind `last`, an engine's id, around the circle of ids. Raises `EngineError` when there is none.
    #[pyo3(signature = (last=None))]
    fn following(&self, last: Option<usize>) -> PyResult<Engine> {
        Ok(self.engine(&self.candidates.following(last.map(EngineId)).map_err(exception)?))
    }

    /// Those of them that can hand KV to `receiver`.
    fn pairing_with(&self, receiver: &Engine) -> Self {
        self.of(self.candidates.clone().pairing_with(&receiver.pick))
    }

    /// Sent by the least loaded of them and, if that fails, by the next.
    #[pyo3(signature = (request, to, begin=None, end=None))]
    fn remote_send(
        &self,
        request: &Request,
        to: &Reservation,
        begin: Option<i64>,
        end: Option<i64>,
    ) -> PyResult<Sending> {
        let range = to.range(request, begin, end)?;
        let sending = match range.is_empty() {
            true => nothing_to_send(),
            false => self.candidates.clone().remote_send(&request.request, &to.destination, range),
        };
        Ok(Sending::new(sending, &self.router_loop))
    }
}

#[pymethods]
impl Reservation {
    /// `prompt[:matched]` is in the engine's prefix cache.
    #[getter]
    fn matched(&self) -> u32 {
        self.destination.matched
    }

    /// `prompt[matched:end]` has pages.
    #[getter]
    fn end(&self) -> u32 {
        self.destination.end
    }

    /// Gives the pages back.
    fn release(&self) {
        drop(self.take());
    }

    /// Whether there is room.
    fn __bool__(&self) -> bool {
        !matches!(&*self.lock(), Pages::Empty)
    }
}

impl Reservation {
    fn of(engine: EngineId, reserved: Reserved) -> Self {
        Self { engine, destination: (*reserved).clone(), reserved: Mutex::new(Pages::Reserved(reserved)) }
    }

    fn empty(engine: EngineId, end: u32) -> Self {
        let destination = Destination { matched: end, end, target: Arc::new([]) };
        Self { engine, destination, reserved: Mutex::new(Pages::Empty) }
    }

    fn lock(&self) -> MutexGuard<'_, Pages> {
        self.reserved.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self) -> Pages {
        std::mem::replace(&mut *self.lock(), Pages::Gone)
    }

    fn take_for(&self, engine: &Engine) -> PyResult<Option<Reserved>> {
        if self.engine != engine.pick.id() {
            return Err(PyValueError::new_err("this reservation is of another engine"));
        }
        match self.take() {
            Pages::Reserved(reserved) => Ok(Some(reserved)),
            Pages::Empty => Ok(None),
            Pages::Gone => {
                Err(PyRuntimeError::new_err("this reservation was released, or a request was started with it"))
            }
        }
    }

    /// What is to be sent: nothing below `matched` is taken, and nothing behind `end` has a place.
    fn range(&self, request: &Request, begin: Option<i64>, end: Option<i64>) -> PyResult<TokenRange> {
        let Destination { matched, end: reserved_end, .. } = self.destination;
        let end = end.map_or(Ok(reserved_end), |end| position("end", end, request))?;
        let begin = begin.map_or(Ok(matched), |begin| position("begin", begin, request))?;
        if begin > end {
            return Err(PyValueError::new_err(format!("begin is {begin}, behind end, which is {end}")));
        }
        if end > reserved_end {
            return Err(PyValueError::new_err(format!("end is {end}, but room was reserved up to {reserved_end}")));
        }
        Ok(TokenRange::new(begin.max(matched), end).unwrap_or_default())
    }
}

impl Sending {
    fn new(sending: baton_router::Sending, router_loop: &Arc<RouterLoop>) -> Self {
        Self { sending: sending.shared(), router_loop: Arc::clone(router_loop) }
    }
}

#[pymethods]
impl Sending {
    /// The number of tokens that the receiver has verified.
    fn __await__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let sending = self.sending.clone();
        let call = async move { Ok(sending.await?.verified_tokens) };
        let verified = |py: Python<'_>, tokens: u32| Ok(tokens.into_pyobject(py)?.into_any().unbind());
        self.router_loop.awaitable(py, call, verified)?.call_method0("__await__")
    }
}

fn nothing_to_send() -> baton_router::Sending {
    async { Ok(Sent { verified_tokens: 0 }) }.boxed()
}

/// A position of the prompt; negative ones count from its end.
fn position(name: &str, position: i64, request: &Request) -> PyResult<u32> {
    let length = request.request.prompt.len() as i64;
    let absolute = if position < 0 { length + position } else { position };
    if (0..=length).contains(&absolute) {
        return Ok(absolute as u32);
    }
    Err(PyValueError::new_err(format!("{name} is {position}, but the prompt has {length} tokens")))
}
