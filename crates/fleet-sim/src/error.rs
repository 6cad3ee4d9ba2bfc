//! Why there is no comparison.

use std::path::{Path, PathBuf};

use baton_bench::BenchError;
use thiserror::Error;

use crate::run::SimulationError;

#[derive(Debug, Error)]
pub enum SimulateError {
    /// What was typed cannot work.
    #[error("{0}")]
    Usage(String),
    #[error(transparent)]
    Trace(#[from] BenchError),
    #[error("{}: {message}", path.display())]
    File { path: PathBuf, message: String },
    #[error("{run}: {error}")]
    Run { run: String, error: SimulationError },
}

impl SimulateError {
    /// Typing something else would help.
    pub fn is_usage(&self) -> bool {
        match self {
            Self::Usage(_) | Self::File { .. } => true,
            Self::Trace(error) => error.is_usage(),
            Self::Run { .. } => false,
        }
    }

    pub(crate) fn file(path: &Path, error: impl ToString) -> Self {
        Self::File { path: path.to_owned(), message: error.to_string() }
    }
}
