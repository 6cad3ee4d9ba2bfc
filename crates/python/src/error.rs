//! Errors on their way between Rust and the classes of `baton.errors`.

use std::fmt::Display;
use std::time::Duration;

use baton_cli::Failure;
use baton_core::{Fault, Retry, ServeError};
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;

mod python {
    use pyo3::import_exception;

    import_exception!(baton.errors, ServeError);
    import_exception!(baton.errors, CallerError);
    import_exception!(baton.errors, BusyError);
    import_exception!(baton.errors, EngineError);
    import_exception!(baton.errors, ConflictError);
}

/// An error of a call, as the exception of its class.
pub(crate) fn exception(error: ServeError) -> PyErr {
    let retry_after = match error.retry {
        Retry::Never => None,
        Retry::Elsewhere => Some(0.0),
        Retry::AfterMs(ms) => Some(Duration::from_millis(ms.into()).as_secs_f64()),
    };
    let arguments = (error.message, retry_after, error.param);
    match error.fault {
        Fault::Caller => python::CallerError::new_err(arguments),
        Fault::Capacity => python::BusyError::new_err(arguments),
        Fault::Engine => python::EngineError::new_err(arguments),
        Fault::Conflict => python::ConflictError::new_err(arguments),
    }
}

/// What a router raised. An exception of another class is a mistake in the router: it is logged with its traceback, and the client
/// learns only that there is one.
pub(crate) fn serve_error(py: Python<'_>, router: &str, raised: &PyErr) -> ServeError {
    if let Some(error) = of_our_class(py, raised) {
        return error;
    }
    let report = report(py, raised).unwrap_or_else(|_| raised.to_string());
    tracing::error!("the router {router} failed: {}", report.trim_end());
    failure(format!("the router {router} failed; the log of the server says why"))
}

/// Nobody but the author of a router can mend it.
pub(crate) fn failure(message: String) -> ServeError {
    ServeError { fault: Fault::Engine, retry: Retry::Never, message, param: None }
}

/// With tracebacks, causes and the members of groups.
fn report(py: Python<'_>, raised: &PyErr) -> PyResult<String> {
    let lines: Vec<String> =
        py.import("traceback")?.call_method1("format_exception", (raised.value(py),))?.extract()?;
    Ok(format!("{raised}\n{}", lines.concat()))
}

/// Of a group, as of asyncio's, if all its members are.
fn of_our_class(py: Python<'_>, raised: &PyErr) -> Option<ServeError> {
    if let Ok(members) = raised.value(py).getattr("exceptions") {
        let members: Vec<Bound<'_, PyAny>> = members.extract().ok()?;
        let errors: Option<Vec<_>> =
            members.into_iter().map(|member| of_our_class(py, &PyErr::from_value(member))).collect();
        return errors?.into_iter().next();
    }
    if !raised.is_instance_of::<python::ServeError>(py) {
        return None;
    }
    let fault = if raised.is_instance_of::<python::CallerError>(py) {
        Fault::Caller
    } else if raised.is_instance_of::<python::BusyError>(py) {
        Fault::Capacity
    } else if raised.is_instance_of::<python::ConflictError>(py) {
        Fault::Conflict
    } else {
        Fault::Engine
    };
    let value = raised.value(py);
    let seconds: Option<f64> = value.getattr("retry_after").ok()?.extract().ok()?;
    let retry = match seconds {
        None => Retry::Never,
        Some(seconds) if seconds > 0.0 => Retry::AfterMs((seconds * 1000.0) as u32),
        Some(_) => Retry::Elsewhere,
    };
    let param = value.getattr("param").ok()?.extract().ok()?;
    Some(ServeError { fault, retry, message: value.to_string(), param })
}

/// A deployment that could not be made: `ValueError` where other arguments can mend it.
pub(crate) fn not_deployed(failure: &Failure) -> PyErr {
    let text = failure.to_string();
    let message = text.strip_prefix("error: ").unwrap_or(&text).to_owned();
    if failure.is_users_fault() { PyValueError::new_err(message) } else { PyRuntimeError::new_err(message) }
}

pub(crate) fn our_fault(error: impl Display) -> PyErr {
    PyRuntimeError::new_err(error.to_string())
}
