//! How a command ends when it does not end well: one message, maybe a hint, and whose fault it was.

use std::fmt;
use std::path::Path;
use std::process::ExitCode;

#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) message: String,
    hint: Option<String>,
    fault: Fault,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    /// What was typed, configured or given as a model cannot work. Exit code 2, as for a mistyped option.
    User,
    /// Everything else. Exit code 1.
    Ours,
}

impl Failure {
    pub(crate) fn user(message: impl fmt::Display) -> Self {
        Self { message: message.to_string(), hint: None, fault: Fault::User }
    }

    pub(crate) fn ours(message: impl fmt::Display) -> Self {
        Self { message: message.to_string(), hint: None, fault: Fault::Ours }
    }

    pub(crate) fn hint(mut self, hint: impl fmt::Display) -> Self {
        self.hint = Some(hint.to_string());
        self
    }

    /// Says which file it is about.
    pub(crate) fn within(self, path: &Path) -> Self {
        self.of(path.display())
    }

    /// Says what it is about.
    pub(crate) fn of(mut self, what: impl fmt::Display) -> Self {
        self.message = format!("{what}: {}", self.message);
        self
    }

    pub(crate) fn exit_code(&self) -> ExitCode {
        match self.fault {
            Fault::User => ExitCode::from(2),
            Fault::Ours => ExitCode::FAILURE,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "error: {}", self.message)?;
        match &self.hint {
            Some(hint) => write!(f, "\nhint: {hint}"),
            None => Ok(()),
        }
    }
}
