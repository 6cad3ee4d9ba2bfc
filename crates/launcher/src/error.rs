//! Why engines could not be brought up. The launch stops; nothing is tried again.

use std::io;
use std::process::ExitStatus;

use baton_core::ServeError;
use baton_protocol::SessionError;
use thiserror::Error;

#[derive(Debug, Error)]
pub enum LaunchError {
    #[error("cannot start engine {name}: {source}")]
    Spawn { name: String, source: io::Error },
    #[error("engine {name} died while starting ({status}){tail}")]
    Died { name: String, status: ExitStatus, tail: Tail },
    #[error("engine {name} said nothing for {silent_s} s while starting{tail}")]
    Stalled { name: String, silent_s: u64, tail: Tail },
    #[error("no session with engine {name}: {source}{tail}")]
    Session { name: String, source: SessionError, tail: Tail },
    #[error("engine {name} could not generate its first token: {source}{tail}")]
    Probe { name: String, source: ServeError, tail: Tail },
}

impl LaunchError {
    /// The engine says that its arguments or model files are at fault, not itself.
    pub fn is_users_fault(&self) -> bool {
        matches!(self, Self::Died { status, .. } if status.code() == Some(2))
    }
}

/// The last lines of an engine's log, as the end of a message.
#[derive(Debug)]
pub struct Tail(pub(crate) Vec<String>);

impl std::fmt::Display for Tail {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.0.is_empty() {
            return f.write_str("; its log is empty");
        }
        f.write_str("; the end of its log:")?;
        self.0.iter().try_for_each(|line| write!(f, "\n  | {line}"))
    }
}
