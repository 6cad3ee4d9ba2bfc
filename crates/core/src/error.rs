//! Errors with whose fault it is and whether trying again can help. Only the gateway turns them into HTTP.

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Why a request was not, or not fully, served.
#[derive(Clone, Debug, PartialEq, Eq, Error, Serialize, Deserialize)]
#[error("{message}")]
pub struct ServeError {
    pub fault: Fault,
    pub retry: Retry,
    /// For a person: what is wrong and, where there is one, what to do.
    pub message: String,
    /// The request field it is about, in the caller's words.
    pub param: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Fault {
    /// The request cannot be served as it is.
    Caller,
    /// There is too much to do now.
    Capacity,
    /// An engine failed, vanished or misbehaved.
    Engine,
    /// The request contradicts what is there: another of the same name, another prompt, an engine with other weights.
    Conflict,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Retry {
    /// The answer would be the same.
    Never,
    /// Another engine, or the same one restarted, may serve it.
    Elsewhere,
    /// After this long.
    AfterMs(u32),
}

impl ServeError {
    pub fn caller(message: impl Into<String>) -> Self {
        Self { fault: Fault::Caller, retry: Retry::Never, message: message.into(), param: None }
    }

    pub fn conflict(message: impl Into<String>) -> Self {
        Self { fault: Fault::Conflict, retry: Retry::Never, message: message.into(), param: None }
    }

    pub fn engine(message: impl Into<String>) -> Self {
        Self { fault: Fault::Engine, retry: Retry::Elsewhere, message: message.into(), param: None }
    }

    pub fn busy(message: impl Into<String>, retry_after_ms: u32) -> Self {
        Self { fault: Fault::Capacity, retry: Retry::AfterMs(retry_after_ms), message: message.into(), param: None }
    }

    #[must_use]
    pub fn about(mut self, param: &str) -> Self {
        self.param = Some(param.to_owned());
        self
    }
}
