//! How long a stream stands still.

use std::sync::Arc;
use std::time::Duration;

use crate::client_requests::ClientRequests;
use crate::clock::Clock;

/// Of one stream, from its request to its last event.
pub(crate) struct StallClock {
    clock: Arc<Clock>,
    requests: Arc<ClientRequests>,
    longest: Duration,
    last: Duration,
}

impl StallClock {
    pub(crate) fn new(clock: &Arc<Clock>, requests: &Arc<ClientRequests>, longest: Duration) -> Self {
        Self { clock: Arc::clone(clock), requests: Arc::clone(requests), longest, last: clock.now() }
    }

    /// Something has come. Of a stall, what was before the last pause of a router does not count.
    pub(crate) fn moves(&mut self) -> Result<(), String> {
        let now = self.clock.now();
        let since = self.last.max(self.requests.stalls_ignored_before());
        self.last = now;
        let stall = now.saturating_sub(since);
        if stall > self.longest { Err(format!("the stream stood still for {stall:?}")) } else { Ok(()) }
    }
}
