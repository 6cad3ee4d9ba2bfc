//! Events of the simulation: what the clock has due.

use std::time::Duration;

use baton_core::{PromptTimes, ReservationId};
use baton_engine::{ExportId, Exported, Outbox};
use baton_protocol::{Command, SessionId};

use crate::fabric::LinkEvent;
use crate::ids::{LinkId, ProcessId, WireId};

pub(crate) enum Event {
    ToEngine(WireId),
    ToRouter(WireId),
    EngineSeesEnd(WireId),
    RouterSeesEnd(WireId),
    /// Arrives at a router.
    Heartbeat(WireId),
    /// A process makes one.
    MakeHeartbeat(ProcessId),
    /// A router looks at those that have arrived.
    Check {
        peer: usize,
        incarnation: u64,
    },
    Boundary(ProcessId),
    Layer(ProcessId, u32),
    Stepped(ProcessId),
    /// A planted bug: a step that counts as done writes its last layer.
    WriteLate(ProcessId),
    Input(ProcessId, Input),
    Link(LinkId, LinkEvent),
    CloseFence(ProcessId, ExportId),
    StartEngine(usize),
    ResumeEngine(ProcessId),
    StartRouter(usize),
    ResumeRouter(usize),
    /// Its strategy, or the role of an engine.
    ChangeRouter(usize),
    Connect {
        peer: usize,
        incarnation: u64,
        engine: usize,
    },
    Client,
    Script,
    Fault(InjectedFault),
    EndFaults,
    Deadline,
}

/// What a process takes at its next step boundary.
pub(crate) enum Input {
    Open(SessionId, Box<dyn Outbox>),
    Command(SessionId, Command),
    Close(SessionId),
    Landed(ReservationId, PromptTimes),
    Revoked(ReservationId, usize),
    Exported(ExportId, Result<Exported, String>),
    Drain,
}

#[derive(Clone, Copy, Debug, Hash)]
pub(crate) enum InjectedFault {
    KillEngine {
        engine: usize,
        down: Duration,
    },
    StopEngine {
        engine: usize,
        pause: Duration,
    },
    /// Stopped for good: a router has to notice, and at last it is killed.
    FreezeEngine {
        engine: usize,
    },
    DrainEngine {
        engine: usize,
    },
    KillRouter {
        router: usize,
        down: Duration,
    },
    CutSession,
    BreakLink,
    /// `None`: until it is killed.
    HangEngine {
        engine: usize,
        how: Hang,
        lasts: Option<Duration>,
    },
    SuspendRouter {
        router: usize,
        pause: Duration,
    },
}

#[derive(Clone, Copy, Debug, Hash)]
pub(crate) enum Hang {
    /// The process is suspended.
    Process,
    /// Heartbeats are sent, but no layer ends.
    Device,
}
