//! What a router may hold of an engine, given what the engine really does.

use std::time::Duration;

use baton_protocol::HEARTBEAT_INTERVAL;
use baton_router::{EngineStatus, InFlight};

use crate::hangs::{Hangs, LIMIT};
use crate::machine::Process;

/// The longest that a heartbeat is on its way.
const ON_ITS_WAY: Duration = Duration::from_millis(100);
/// Times the slowest layer: what `docs/routing.md` promises.
const SLOW_LAYERS: u32 = 4;

pub(crate) struct HangChecker<'a> {
    pub(crate) hangs: Hangs,
    pub(crate) process: &'a Process,
    pub(crate) now: Duration,
    /// Between two checks.
    pub(crate) interval: Duration,
    /// Since when the router has run without a pause.
    pub(crate) attentive_since: Duration,
}

impl HangChecker<'_> {
    /// `before` and `after` a router's check; `asked_at`: when it sent its newest request to the engine; `restarts`: it holds
    /// the process for lost, and kills it.
    pub(crate) fn check(
        &self,
        before: &EngineStatus,
        after: &EngineStatus,
        asked_at: Duration,
        restarts: bool,
    ) -> Result<(), String> {
        let hung = self.process.hung_since();
        let went_on = self.process.pulse.went_on_at();
        let lately = went_on.is_some_and(|at| self.now < at + self.delay());
        let condemned = after.hangs > before.hangs;
        if (condemned || restarts) && hung.is_none() && !lately {
            let how = if condemned { "held for hung" } else { "killed" };
            return Err(format!("{how} although it lives"));
        }
        if let Some(since) = hung {
            let since = since.max(self.attentive_since);
            let noticed_at = since + self.limit() + self.delay();
            if self.now > noticed_at && (before.ready || before.in_flight != InFlight::default()) {
                let load = before.in_flight;
                return Err(format!("hangs since {since:?}, and is in use: ready {}, {load:?}", before.ready));
            }
            if asked_at > noticed_at {
                return Err(format!("hangs since {since:?}, and got a request at {asked_at:?}"));
            }
        }
        let since = went_on.unwrap_or_default().max(self.attentive_since);
        if hung.is_none() && self.now > since + self.delay() && !after.ready {
            return Err(format!("lives since {since:?}, and is not used again"));
        }
        Ok(())
    }

    /// Work that stands still has longer where layers are slow.
    fn limit(&self) -> Duration {
        LIMIT.max(self.hangs.slowest_layer().max(self.process.pulse.slowest()) * SLOW_LAYERS)
    }

    /// From what an engine does to what a router makes of it: a heartbeat is made, travels, is read, and tasks run.
    fn delay(&self) -> Duration {
        2 * HEARTBEAT_INTERVAL + ON_ITS_WAY + 2 * self.interval
    }
}
