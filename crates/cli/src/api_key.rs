//! The key that clients of the gateway send: from the command line, baton.toml or the environment.

use std::env::{self, VarError};
use std::fmt;

use baton_gateway::ApiKey;
use serde::{Deserialize, Deserializer, de};

use crate::failure::Failure;

pub(crate) const ENV: &str = "BATON_API_KEY";

/// As it was typed. It is shown nowhere: errors about it do not repeat it.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct TypedKey(String);

impl From<String> for TypedKey {
    fn from(key: String) -> Self {
        Self(key)
    }
}

impl fmt::Debug for TypedKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TypedKey(…)")
    }
}

impl<'de> Deserialize<'de> for TypedKey {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(Self).map_err(|_| de::Error::custom("expected a string"))
    }
}

/// An empty variable is none at all.
pub(crate) fn api_key(typed: Option<&TypedKey>) -> Result<Option<ApiKey>, Failure> {
    if let Some(TypedKey(key)) = typed {
        return checked(key).map(Some).map_err(|failure| failure.of("--api-key"));
    }
    match env::var(ENV) {
        Ok(key) if !key.is_empty() => checked(&key).map(Some).map_err(|failure| failure.of(ENV)),
        Err(VarError::NotUnicode(_)) => Err(unusable().of(ENV)),
        _ => Ok(None),
    }
}

/// Clients send it in a header.
fn checked(key: &str) -> Result<ApiKey, Failure> {
    match key.bytes().all(|byte| byte.is_ascii_graphic()) {
        _ if key.is_empty() => Err(Failure::user("the key is empty")),
        true => Ok(ApiKey::new(key)),
        false => Err(unusable()),
    }
}

fn unusable() -> Failure {
    Failure::user("a key is one line of visible ASCII characters without spaces")
}
