//! The error of a command or a deployment: one message, possibly a hint, and an exit status that shows whether the user can fix it.

use std::fmt;
use std::path::Path;

#[derive(Debug)]
pub struct Failure {
    pub(crate) message: String,
    hint: Option<String>,
    cause: Cause,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cause {
    /// An argument, configuration or model that cannot work. Exit status 2, as for a mistyped option.
    User,
    /// Everything else. Exit status 1.
    Ours,
}

impl Failure {
    pub(crate) fn user(message: impl fmt::Display) -> Self {
        Self { message: message.to_string(), hint: None, cause: Cause::User }
    }

    pub(crate) fn ours(message: impl fmt::Display) -> Self {
        Self { message: message.to_string(), hint: None, cause: Cause::Ours }
    }

    /// An option that does not exist, or cannot have this value.
    pub(crate) fn mistyped(error: clap::Error) -> Self {
        let text = error.to_string();
        Self::user(text.strip_prefix("error: ").unwrap_or(&text).trim_end())
    }

    pub(crate) fn hint(mut self, hint: impl fmt::Display) -> Self {
        self.hint = Some(hint.to_string());
        self
    }

    /// Puts the file's path before the message.
    pub(crate) fn within(self, path: &Path) -> Self {
        self.of(path.display())
    }

    /// Puts `what` the failure is about before the message.
    pub(crate) fn of(mut self, what: impl fmt::Display) -> Self {
        self.message = format!("{what}: {}", self.message);
        self
    }

    /// Whether other arguments, another configuration or another model can mend it.
    pub fn is_users_fault(&self) -> bool {
        self.cause == Cause::User
    }

    pub(crate) fn exit_status(&self) -> u8 {
        match self.cause {
            Cause::User => 2,
            Cause::Ours => 1,
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
