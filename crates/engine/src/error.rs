//! Why an engine did not start or stopped. The error of a single request is a [`baton_core::ServeError`].

use std::io;
use std::sync::Arc;

use baton_backend::BackendError;
use thiserror::Error;

/// After any of these the engine is gone: its requests can be served elsewhere, or here by a new process.
#[derive(Clone, Debug, Error)]
pub enum EngineError {
    /// The operator's fault.
    #[error("{option} must be at least 1")]
    Config { option: &'static str },
    #[error("cannot start the step loop's thread: {0}")]
    Thread(Arc<io::Error>),
    /// The operator's fault, or the machine's.
    #[error("cannot hand KV over: {0}")]
    Fabric(String),
    #[error(transparent)]
    Backend(Arc<BackendError>),
    /// Ours or the backend's: the results do not belong to the plan.
    #[error("step results do not match the plan: {0}")]
    Results(String),
    /// Ours: sequences wait although nothing holds them up.
    #[error("{waiting} sequences wait, none runs and none can be admitted")]
    Stuck { waiting: usize },
    #[error("the step loop panicked")]
    Panicked,
}

impl From<BackendError> for EngineError {
    fn from(error: BackendError) -> Self {
        Self::Backend(Arc::new(error))
    }
}
