//! What happens at a moment of virtual time, besides tasks that wake.

use std::time::Duration;

use baton_core::{PromptTimes, ReservationId};
use baton_engine::{ExportId, Exported};
use baton_protocol::{Command, StepReply};

/// An engine's place in the fleet, from 0 on.
pub(crate) type EngineIndex = usize;

pub(crate) enum Event {
    /// An engine looks at what has arrived, and begins a step if there is something to compute.
    Boundary(EngineIndex),
    /// The step that an engine computes is done.
    StepDone(EngineIndex),
    /// Something arrives at an engine.
    Input(EngineIndex, Input),
    /// An engine's reply arrives at the router.
    Reply(EngineIndex, Box<StepReply>),
    /// Pages of a hand-off have arrived.
    Arrived(Arrival),
    /// The last of a hand-off has arrived.
    Landed { arrival: Arrival, export: (EngineIndex, ExportId), times: PromptTimes },
}

pub(crate) enum Input {
    Command(Command, Duration),
    Landed(ReservationId, PromptTimes),
    Exported(ExportId, Result<Exported, String>),
}

/// Pages of the prompt up to `page_end` are there.
#[derive(Clone, Copy)]
pub(crate) struct Arrival {
    pub(crate) to: EngineIndex,
    pub(crate) reservation: ReservationId,
    pub(crate) page_end: usize,
}
