//! Errors of a launch. The first one ends the launch; nothing is tried again.

use std::io;
use std::process::ExitStatus;

use baton_core::ServeError;
use baton_protocol::SessionError;
use thiserror::Error;

use crate::endpoint::Endpoint;

#[derive(Debug, Error)]
pub enum LaunchError {
    #[error("cannot start engine {name}: {source}")]
    Spawn { name: String, source: io::Error },
    #[error("engine {name} died while starting ({status}){tail}")]
    Died { name: String, status: ExitStatus, tail: Tail },
    #[error("engine {name} printed nothing for {silent_s} s while starting{tail}")]
    Stalled { name: String, silent_s: u64, tail: Tail },
    #[error("no session with engine {name}: {source}{tail}")]
    Session { name: String, source: SessionError, tail: Tail },
    #[error("engine {name} could not generate its first token: {source}{tail}")]
    Probe { name: String, source: ServeError, tail: Tail },
    #[error("engine {name} at {endpoint} cannot be reached: {source}")]
    Unreachable { name: String, endpoint: Endpoint, source: SessionError },
    /// Something listens there, but refuses the session or is not an engine.
    #[error("engine {name} at {endpoint}: {source}")]
    TurnedAway { name: String, endpoint: Endpoint, source: SessionError },
    #[error("engine {name} has a context of {theirs} tokens, this deployment one of {ours}")]
    ShortContext { name: String, theirs: u32, ours: u32 },
    #[error("engine {name} is at {endpoint} already")]
    AlreadyThere { name: String, endpoint: Endpoint },
    #[error("engine {name} has {what} {theirs:?}, {whose} {ours:?}")]
    Mismatch { name: String, what: &'static str, theirs: String, whose: String, ours: String },
}

impl LaunchError {
    /// Whether the user can mend it: the engine reports that its arguments or model files are wrong, or another engine was meant.
    pub fn is_users_fault(&self) -> bool {
        match self {
            Self::Died { status, .. } => status.code() == Some(2),
            Self::TurnedAway { .. } | Self::Mismatch { .. } | Self::ShortContext { .. } | Self::AlreadyThere { .. } => {
                true
            }
            _ => false,
        }
    }
}

/// The last lines of an engine's log, at the end of a message. `None` for an engine whose log is elsewhere.
#[derive(Debug)]
pub struct Tail(pub(crate) Option<Vec<String>>);

impl std::fmt::Display for Tail {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0.as_deref() {
            None => Ok(()),
            Some([]) => f.write_str("; its log is empty"),
            Some(lines) => {
                f.write_str("; the end of its log:")?;
                lines.iter().try_for_each(|line| write!(f, "\n  | {line}"))
            }
        }
    }
}
