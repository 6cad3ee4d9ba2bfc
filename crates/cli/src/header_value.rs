//! Keys and secrets: clients send them in a header.

use std::env::{self, VarError};

use crate::failure::Failure;

pub(crate) fn check_header_value(what: &str, value: &str) -> Result<(), Failure> {
    match value.bytes().all(|byte| byte.is_ascii_graphic()) {
        _ if value.is_empty() => Err(Failure::user(format!("the {what} is empty"))),
        true => Ok(()),
        false => Err(unusable(what)),
    }
}

/// An empty variable is none at all.
pub(crate) fn header_value_from_env(what: &str, variable: &'static str) -> Result<Option<String>, Failure> {
    match env::var(variable) {
        Ok(value) if !value.is_empty() => {
            check_header_value(what, &value).map_err(|failure| failure.of(variable))?;
            Ok(Some(value))
        }
        Err(VarError::NotUnicode(_)) => Err(unusable(what).of(variable)),
        _ => Ok(None),
    }
}

fn unusable(what: &str) -> Failure {
    Failure::user(format!("a {what} is one line of visible ASCII characters without spaces"))
}
