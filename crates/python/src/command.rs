//! The command `baton`, run by Python's interpreter.

use std::ffi::OsString;
use std::path::PathBuf;

use baton_core::Program;
use pyo3::prelude::*;

/// Runs a command with its arguments, the first of which is the name of the program, and returns its exit status.
#[pyfunction]
pub(crate) fn main(py: Python<'_>, arguments: Vec<OsString>) -> u8 {
    py.detach(|| baton_cli::main(arguments))
}

/// Writes a line to the log of the deployments.
#[pyfunction]
pub(crate) fn warn(text: &str) {
    tracing::warn!("{text}");
}

/// Engines are started by running `script` with `interpreter`: this process's own executable knows no commands of ours.
#[pyfunction]
pub(crate) fn embed(interpreter: PathBuf, script: OsString) {
    Program { path: interpreter, arguments: vec![script] }.embed();
}
