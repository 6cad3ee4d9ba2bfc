//! Work for Baton's own threads, for which a thread of Python's waits in such a way that Ctrl-C reaches it.

use std::io;
use std::sync::OnceLock;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use tokio::runtime::{Builder, Runtime};

use crate::error::our_fault;

/// How long a signal may wait for its handler.
const TICK: Duration = Duration::from_millis(100);

/// The threads of all deployments of this process. They never end: an engine's process ends with the thread that started it.
pub(crate) fn runtime() -> PyResult<&'static Runtime> {
    static RUNTIME: OnceLock<io::Result<Runtime>> = OnceLock::new();
    let runtime = RUNTIME.get_or_init(|| Builder::new_multi_thread().enable_all().thread_name("baton").build());
    runtime.as_ref().map_err(our_fault)
}

/// Waits for `work`. A signal whose handler raises an exception drops the work.
pub(crate) fn wait_for<T: Send + 'static>(
    py: Python<'_>,
    work: impl Future<Output = T> + Send + 'static,
) -> PyResult<T> {
    let (done, result) = mpsc::sync_channel(1);
    let task = runtime()?.spawn(async move {
        // Without anyone to take it the result is dropped.
        let _ = done.send(work.await);
    });
    let mut result = result;
    loop {
        let (waited, kept) = py.detach(move || (result.recv_timeout(TICK), result));
        result = kept;
        match waited {
            Ok(value) => return Ok(value),
            Err(RecvTimeoutError::Timeout) => py.check_signals().inspect_err(|_| task.abort())?,
            Err(RecvTimeoutError::Disconnected) => return Err(PyRuntimeError::new_err("Baton's threads have ended")),
        }
    }
}
