//! Where Rust and Python meet: Python's event loop, and what Baton's threads have for it.
//!
//! One thread of ours attaches to the interpreter on behalf of all others: a thread that serves streams never waits for Python, and
//! what has come together meanwhile wakes the loop once.

use std::panic::{self, AssertUnwindSafe};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

use baton_core::ServeError;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use tokio::task::AbortHandle;

use crate::error::{exception, our_fault};
use crate::interrupt::runtime;

/// Runs on the thread of the loop.
type Delivery = Box<dyn FnOnce(Python<'_>) + Send>;

/// An asyncio loop that runs routers, on a thread of its own.
#[pyclass(frozen)]
pub(crate) struct EventLoop(Arc<RouterLoop>);

pub(crate) struct RouterLoop {
    asyncio: Py<PyAny>,
    deliveries: Sender<Order>,
    /// Until the loop is closed.
    thread: Mutex<Option<JoinHandle<()>>>,
}

enum Order {
    Deliver(Delivery),
    Close,
}

#[pyclass(frozen)]
struct Deliveries(Mutex<Vec<Delivery>>);

/// Aborts a call whose awaitable has been cancelled.
#[pyclass(frozen)]
struct AbortWithAwaitable(AbortHandle);

#[pymethods]
impl EventLoop {
    #[new]
    fn new(py: Python<'_>, asyncio: Py<PyAny>) -> PyResult<Self> {
        let (sender, deliveries) = mpsc::channel();
        let same = asyncio.clone_ref(py);
        let thread = thread::Builder::new().name("baton-to-python".to_owned());
        let thread = thread.spawn(move || deliver(&same, &deliveries)).map_err(our_fault)?;
        Ok(Self(Arc::new(RouterLoop { asyncio, deliveries: sender, thread: Mutex::new(Some(thread)) })))
    }

    /// Nothing more reaches the loop. No thread of ours attaches to an interpreter that is ending.
    fn close(&self, py: Python<'_>) {
        let thread = self.0.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread
            && self.0.deliveries.send(Order::Close).is_ok()
        {
            // It does not panic: what is delivered runs on another thread.
            let _ = py.detach(|| thread.join());
        }
    }
}

impl EventLoop {
    pub(crate) fn share(&self) -> Arc<RouterLoop> {
        Arc::clone(&self.0)
    }
}

impl RouterLoop {
    /// Dropped where the loop has been closed.
    pub(crate) fn run(&self, delivery: impl FnOnce(Python<'_>) + Send + 'static) {
        // A loop that is closed takes nothing.
        let _ = self.deliveries.send(Order::Deliver(Box::new(delivery)));
    }

    /// Something to await for the answer of a call that goes on elsewhere.
    pub(crate) fn awaitable<'py, T: Send + 'static>(
        self: &Arc<Self>,
        py: Python<'py>,
        call: impl Future<Output = Result<T, ServeError>> + Send + 'static,
        convert: impl FnOnce(Python<'_>, T) -> PyResult<Py<PyAny>> + Send + 'static,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.check_running(py)?;
        let waiting = self.asyncio.bind(py).call_method0("create_future")?;
        let (this, answered) = (Arc::clone(self), waiting.clone().unbind());
        let task = runtime()?.spawn(async move {
            let answer = call.await;
            this.run(move |py| {
                let answer = answer.map_err(exception).and_then(|value| convert(py, value));
                settle(answered.bind(py), answer);
            });
        });
        waiting.call_method1("add_done_callback", (AbortWithAwaitable(task.abort_handle()),))?;
        Ok(waiting)
    }

    /// Awaitables are not safe to use from other threads.
    fn check_running(&self, py: Python<'_>) -> PyResult<()> {
        let running = py.import("asyncio")?.call_method0("get_running_loop")?;
        if running.is(&self.asyncio) {
            return Ok(());
        }
        Err(PyRuntimeError::new_err("engines are called from within a router, on the loop that runs it"))
    }
}

#[pymethods]
impl Deliveries {
    fn __call__(&self, py: Python<'_>) {
        let deliveries = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        for delivery in deliveries {
            // One that panics is reported by the panic's hook; the others are delivered.
            let _ = panic::catch_unwind(AssertUnwindSafe(|| delivery(py)));
        }
    }
}

#[pymethods]
impl AbortWithAwaitable {
    fn __call__(&self, _awaitable: &Bound<'_, PyAny>) {
        self.0.abort();
    }
}

fn deliver(asyncio: &Py<PyAny>, orders: &Receiver<Order>) {
    while let Ok(Order::Deliver(first)) = orders.recv() {
        let mut closed = false;
        let attached = Python::try_attach(|py| {
            let mut all = vec![first];
            // What came while this thread waited for the interpreter goes with the first.
            for order in orders.try_iter() {
                match order {
                    Order::Deliver(delivery) => all.push(delivery),
                    Order::Close => closed = true,
                }
            }
            let woken = asyncio.call_method1(py, "call_soon_threadsafe", (Deliveries(Mutex::new(all)),));
            if let Err(error) = woken {
                tracing::debug!(%error, "Python's event loop takes nothing more");
            }
        });
        if closed || attached.is_none() {
            return;
        }
    }
}

/// A future that was cancelled meanwhile is done already.
fn settle(waiting: &Bound<'_, PyAny>, answer: PyResult<Py<PyAny>>) {
    let done = waiting.call_method0("done").and_then(|done| done.is_truthy());
    let settled = match (done, answer) {
        (Ok(false), Ok(value)) => waiting.call_method1("set_result", (value,)),
        (Ok(false), Err(error)) => waiting.call_method1("set_exception", (error,)),
        _ => return,
    };
    if let Err(error) = settled {
        error.write_unraisable(waiting.py(), Some(waiting));
    }
}
