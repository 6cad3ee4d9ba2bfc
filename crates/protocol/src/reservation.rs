//! The order of the hand-off in types: without a [`Reservation`] there is nowhere to send to, and it can be started from
//! only once.

use std::ops::Deref;
use std::sync::Arc;

use baton_core::{ReservationId, TokenRange};

/// Pages of a receiving engine that wait for KV. Dropping it gives them back; starting a request with it uses it up.
pub struct Reservation {
    destination: Destination,
    release: Release,
}

/// Where a reservation's KV goes. Outlives the reservation, so that sending can go on while a request waits for it; what
/// is sent to a reservation that is gone is refused by the receiver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Destination {
    /// `[0, matched)` is there already: whole pages.
    pub matched: u32,
    /// `[matched, end)` has pages.
    pub end: u32,
    /// In the fabric's own words, for a sending engine only.
    pub target: Arc<[u8]>,
}

/// KV that has been handed over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sent {
    /// Of the range that was sent; the receiver computes the rest.
    pub verified_tokens: u32,
}

/// Reports, when dropped, that nothing more will come for a reservation.
pub(crate) struct Release {
    id: ReservationId,
    /// Absent once that has been reported, or need not be.
    on_release: Option<OnRelease>,
}

type OnRelease = Box<dyn FnOnce(ReservationId) + Send + Sync>;

impl Reservation {
    /// `on_release` is called once: when the reservation is dropped, or when it has been started with and nothing more is
    /// to be expected, or the request ended before its prompt was computed.
    pub fn new(
        id: ReservationId,
        destination: Destination,
        on_release: impl FnOnce(ReservationId) + Send + Sync + 'static,
    ) -> Self {
        Self { destination, release: Release { id, on_release: Some(Box::new(on_release)) } }
    }

    pub fn id(&self) -> ReservationId {
        self.release.id
    }

    pub(crate) fn into_release(self) -> Release {
        self.release
    }
}

impl Deref for Reservation {
    type Target = Destination;

    fn deref(&self) -> &Destination {
        &self.destination
    }
}

impl Destination {
    /// What has to be sent; `None` when all of it is there.
    pub fn missing(&self) -> Option<TokenRange> {
        TokenRange::new(self.matched, self.end).filter(|range| !range.is_empty())
    }
}

impl Release {
    /// The engine has used it up: there is nothing left to report.
    pub(crate) fn disarm(mut self) {
        self.on_release = None;
    }
}

impl Drop for Release {
    fn drop(&mut self) {
        if let Some(on_release) = self.on_release.take() {
            on_release(self.id);
        }
    }
}
