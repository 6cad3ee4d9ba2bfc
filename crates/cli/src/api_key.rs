//! The key that clients of the gateway send: from the command line, baton.toml or the environment.

use std::fmt;

use baton_gateway::ApiKey;
use serde::{Deserialize, Deserializer, de};

use crate::failure::Failure;
use crate::header_value::{check_header_value, header_value_from_env};

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
        check_header_value("key", key).map_err(|failure| failure.of("--api-key"))?;
        return Ok(Some(ApiKey::new(key)));
    }
    Ok(header_value_from_env("key", ENV)?.map(|key| ApiKey::new(&key)))
}
