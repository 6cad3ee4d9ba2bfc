//! Entries of the event log.

use baton_core::{Attempt, RequestId, ReservationId};
use baton_engine::ExportId;

use crate::event::InjectedFault;
use crate::ids::{LinkId, ProcessId, WireId};

#[derive(Clone, Debug, Hash)]
pub(crate) enum LogEntry {
    Requested { client: u64, router: usize, prompt_tokens: usize, choices: usize },
    ScriptStarted { script: u64, plan: &'static str, prompt_tokens: usize },
    Ended { client: u64, how: &'static str },
    Fault(InjectedFault),
    Calm,
    Started(ProcessId),
    Gone(ProcessId, &'static str),
    Connected { wire: WireId, router: usize, to: ProcessId },
    RouterLost(WireId),
    EngineLost(WireId),
    Cut(WireId),
    CacheUpdateLost(WireId),
    Command { wire: WireId, command: &'static str, request: Option<RequestId>, attempt: Option<Attempt> },
    Reply { wire: WireId, events: Vec<(&'static str, RequestId, Attempt)> },
    Step { process: ProcessId, segments: usize, tokens: usize },
    Stepped(ProcessId),
    Expected { process: ProcessId, reservation: ReservationId, begin: usize, end: usize },
    Revoked { process: ProcessId, reservation: ReservationId, verified: usize },
    Export { process: ProcessId, export: ExportId, link: LinkId },
    ExportClosed { process: ProcessId, export: ExportId },
    Offered { link: LinkId, layer: u32, first_index: usize, pages: usize },
    Withheld(LinkId),
    Taken { link: LinkId, layer: u32, good: usize, stale: usize, damaged: usize },
    Unknown(LinkId),
    Landed { process: ProcessId, reservation: ReservationId },
    Exported { process: ProcessId, export: ExportId, verified: Option<usize> },
    LinkBroken(LinkId),
}
