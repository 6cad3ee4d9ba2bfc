//! Why there is nothing to measure. What goes wrong with single requests is part of the result: [`crate::record::RequestFailure`].

use std::path::{Path, PathBuf};

#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// What was typed cannot work.
    #[error("{0}")]
    Usage(String),
    /// The server cannot be measured: not there, not ready, not OpenAI-compatible.
    #[error("{url}: {message}")]
    Server { url: String, message: String },
    #[error("{}: {message}", path.display())]
    File { path: PathBuf, message: String },
    #[error("{0}")]
    System(String),
}

impl BenchError {
    /// Typing something else would help.
    pub fn is_usage(&self) -> bool {
        matches!(self, Self::Usage(_) | Self::File { .. })
    }

    pub(crate) fn file(path: &Path, error: impl ToString) -> Self {
        Self::File { path: path.to_owned(), message: error.to_string() }
    }
}
