//! How this program is started once more, as a child process.

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::sync::OnceLock;

static EMBEDDED: OnceLock<Program> = OnceLock::new();

/// An executable, and what comes before the arguments of a command of ours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    pub path: PathBuf,
    pub arguments: Vec<OsString>,
}

impl Program {
    /// This process's own executable, unless it is [embedded](Self::embed) in another program.
    pub fn this() -> io::Result<Self> {
        match EMBEDDED.get() {
            Some(program) => Ok(program.clone()),
            None => Ok(Self { path: std::env::current_exe()?, arguments: Vec::new() }),
        }
    }

    /// Says how to start our commands where this process's executable is an interpreter. The first call counts.
    pub fn embed(self) {
        let _ = EMBEDDED.set(self);
    }
}
