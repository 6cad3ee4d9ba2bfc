//! Where a prefill engine's KV waits for whoever fetches it. Each piece is fetched once, by someone with the same prompt.

use std::time::Duration;

use thiserror::Error;

use super::offers::Offers;
use super::rooms::Rooms;

pub(super) struct Desk {
    pub(super) offers: Offers,
    pub(super) rooms: Rooms,
}

impl Desk {
    /// `timeout`: for KV to be fetched, and for the other leg to come.
    pub(super) fn new(timeout: Duration) -> Self {
        Self { offers: Offers::new(timeout), rooms: Rooms::new(timeout) }
    }
}

/// Why there is no KV.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub(super) enum Refusal {
    #[error("the prefill engine has no KV under this name")]
    Unknown,
    #[error("this KV was fetched before, or its room was used before: each is good for one request")]
    Used,
    #[error("the KV was not fetched in time and is gone")]
    Expired,
    #[error("the KV is that of another prompt")]
    OtherPrompt,
    #[error("the prefill engine is gone")]
    Gone,
    #[error("the other engine did not come in time")]
    NoShow,
}
