//! KV of a prefill engine that waits for its decode engine. It can be fetched once, with the same prompt.

use std::time::Duration;

use thiserror::Error;

use super::offers::Offers;
use super::sessions::LegSessions;

pub(super) struct PendingHandOffs {
    pub(super) offers: Offers,
    pub(super) sessions: LegSessions,
}

impl PendingHandOffs {
    /// `timeout` bounds how long KV waits to be fetched and how long a leg waits for the other.
    pub(super) fn new(timeout: Duration) -> Self {
        Self { offers: Offers::new(timeout), sessions: LegSessions::new(timeout) }
    }
}

/// Why a decode engine gets no KV.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub(super) enum KvError {
    #[error("the prefill engine has no KV under this name")]
    Unknown,
    #[error("this KV was fetched before, or its bootstrap_room was used before: each is valid for one request")]
    Used,
    #[error("the KV has expired: it was not fetched in time")]
    Expired,
    #[error("the KV belongs to another prompt")]
    OtherPrompt,
    #[error("the connection to the prefill engine is lost")]
    Gone,
    #[error("the other engine did not connect in time")]
    PeerTimeout,
}
