//! A strategy whose decisions are made in Python.

use std::sync::Arc;

use baton_core::{GenerateRequest, ServeError};
use baton_router::{Leg, Roster, Strategy};
use futures_util::future::BoxFuture;
use pyo3::prelude::*;

use crate::attempt::{Attempt, Outcome};
use crate::error::{failure, serve_error};
use crate::event_loop::RouterLoop;

pub(crate) struct PythonStrategy {
    pub(crate) name: String,
    pub(crate) router_loop: Arc<RouterLoop>,
    /// Takes an attempt, on the thread of the loop, and begins to route it.
    pub(crate) begin: Arc<Py<PyAny>>,
}

impl Strategy for PythonStrategy {
    fn name(&self) -> &str {
        &self.name
    }

    fn route(&self, roster: Arc<Roster>, request: GenerateRequest) -> BoxFuture<'static, Result<Leg, ServeError>> {
        let (outcome, answer) = Outcome::new(&self.name, request, Arc::clone(&self.router_loop));
        let (name, begin, begun) = (self.name.clone(), Arc::clone(&self.begin), Arc::clone(&outcome));
        self.router_loop.run(move |py| {
            let attempt = Attempt::new(py, roster, Arc::clone(&begun));
            if let Err(error) = attempt.and_then(|attempt| begin.call1(py, (attempt,))) {
                begun.fail(serve_error(py, &name, &error));
            }
        });
        let waiting = CancelOnDrop(Some(outcome));
        Box::pin(async move {
            let mut waiting = waiting;
            let answer = answer.await;
            waiting.0 = None;
            answer.unwrap_or_else(|_| Err(failure("the router has ended".to_owned())))
        })
    }
}

/// Of an attempt whose answer is not waited for any more.
struct CancelOnDrop(Option<Arc<Outcome>>);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        if let Some(outcome) = self.0.take() {
            outcome.cancel();
        }
    }
}
