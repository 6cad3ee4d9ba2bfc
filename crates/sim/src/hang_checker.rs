//! Compares a router's view of an engine with what the engine really does.

use std::time::Duration;

use baton_protocol::HEARTBEAT_INTERVAL;
use baton_router::{EngineStatus, InFlight};

use crate::hang_scenario::{HangScenario, LIMIT};
use crate::process::Process;

/// The longest that a heartbeat is on its way.
const ON_ITS_WAY: Duration = Duration::from_millis(100);
/// Times the slowest layer: what `docs/routing.md` promises.
const SLOW_LAYERS: u32 = 4;

pub(crate) struct HangChecker<'a> {
    pub(crate) hangs: HangScenario,
    pub(crate) process: &'a Process,
    pub(crate) now: Duration,
    /// Between two checks.
    pub(crate) interval: Duration,
    /// Since when the router has run without a pause.
    pub(crate) running_since: Duration,
}

impl HangChecker<'_> {
    /// `before` and `after` a check of the router; `last_request_at`: when it sent its newest request to the engine;
    /// `restarts`: it gives the process up, and kills it.
    pub(crate) fn check(
        &self,
        before: &EngineStatus,
        after: &EngineStatus,
        last_request_at: Duration,
        restarts: bool,
    ) -> Result<(), String> {
        let hung = self.process.hung_since();
        let resumed_at = self.process.progress.resumed_at();
        let resumed_recently = resumed_at.is_some_and(|at| self.now < at + self.delay());
        let given_up = after.hangs > before.hangs;
        if (given_up || restarts) && hung.is_none() && !resumed_recently {
            let how = if given_up { "given up" } else { "killed" };
            return Err(format!("{how} although it lives"));
        }
        if let Some(since) = hung {
            let since = since.max(self.running_since);
            let noticed_at = since + self.limit() + self.delay();
            if self.now > noticed_at && (before.is_ready() || before.in_flight != InFlight::default()) {
                let load = before.in_flight;
                return Err(format!("hangs since {since:?}, and is in use: ready {}, {load:?}", before.is_ready()));
            }
            if last_request_at > noticed_at {
                return Err(format!("hangs since {since:?}, and got a request at {last_request_at:?}"));
            }
        }
        let since = resumed_at.unwrap_or_default().max(self.running_since);
        if hung.is_none() && self.now > since + self.delay() && !after.is_ready() {
            return Err(format!("lives since {since:?}, and is not used again"));
        }
        Ok(())
    }

    /// Work that stands still has longer where layers are slow.
    fn limit(&self) -> Duration {
        LIMIT.max(self.hangs.slowest_layer().max(self.process.progress.slowest()) * SLOW_LAYERS)
    }

    /// From what an engine does to what a router makes of it: a heartbeat is made, travels, is read, and tasks run.
    fn delay(&self) -> Duration {
        2 * HEARTBEAT_INTERVAL + ON_ITS_WAY + 2 * self.interval
    }
}
