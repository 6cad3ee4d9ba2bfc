//! How KV travels between simulated engines: the fabric's protocol message by message, with its moments apart.
//!
//! ```text
//!   sender's step    page final ─▶ job                                               close: fence up → down, pages reused
//!   sender's link                   sum, is the fence up? ─▶ offer (tcp: and bytes, read now)
//!   receiver                                                  copy (shm: from the sender's pages, now) ─▶ sum equal?
//!                                                             fence still up? ─▶ the block counts
//! ```
//! Between any two of them other things happen. Bytes and threads are not run here; `crates/fabric` tests those.

mod expected;
mod fence;
mod link;
mod message;
mod port;
mod receiving;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use baton_engine::{ExportId, Exported};

use expected::ExpectedKv;
use fence::Fences;
use link::Link;
pub(crate) use message::LinkEvent;
use port::OpenExport;

use crate::clock::{Clock, lock};
use crate::event::{Event, Input};
use crate::event_log::EventLog;
use crate::ids::{LinkId, ProcessId};
use crate::log_entry::LogEntry;
use crate::memory::Memory;
use crate::mutation::Mutation;
use crate::random::Random;
use crate::scenario::Transfers;
use message::Key;
pub(crate) use port::Port;

/// Clones are the same network.
#[derive(Clone)]
pub(crate) struct Fabric(Arc<Mutex<State>>);

struct State {
    clock: Arc<Clock>,
    log: Arc<EventLog>,
    random: Random,
    transfers: Transfers,
    mutation: Option<Mutation>,
    nodes: BTreeMap<ProcessId, Node>,
    /// Which process answers at an engine's address.
    listening: BTreeMap<usize, ProcessId>,
    links: BTreeMap<LinkId, Link>,
    next_link: u64,
    counts: TransferCounts,
}

/// Counts of offered blocks by outcome, and of broken links.
#[derive(Clone, Copy, Debug, Default)]
pub struct TransferCounts {
    pub taken: u64,
    pub stale: u64,
    /// Not offered at all, because the fence was down already.
    pub withheld: u64,
    pub damaged: u64,
    /// Offers to reservations that have ended.
    pub unknown: u64,
    /// Reservations that were revoked while a block was copied into their pages.
    pub revoked_in_copy: u64,
    pub repeated: u64,
    pub out_of_order: u64,
    pub links_broken: u64,
}

/// One engine process. Stays when it has died: its memory can still be read.
struct Node {
    memory: Memory,
    fences: Fences,
    exports: BTreeMap<ExportId, OpenExport>,
    expected: BTreeMap<Key, ExpectedKv>,
    /// As counted by its backend.
    layers_done: u64,
    alive: bool,
}

impl Fabric {
    pub(crate) fn new(
        clock: Arc<Clock>,
        log: Arc<EventLog>,
        random: Random,
        transfers: Transfers,
        mutation: Option<Mutation>,
    ) -> Self {
        Self(Arc::new(Mutex::new(State {
            clock,
            log,
            random,
            transfers,
            mutation,
            nodes: BTreeMap::new(),
            listening: BTreeMap::new(),
            links: BTreeMap::new(),
            next_link: 0,
            counts: TransferCounts::default(),
        })))
    }

    /// A new process at an engine's address.
    pub(crate) fn join(&self, engine: usize, process: ProcessId, memory: Memory) -> Port {
        let mut state = lock(&self.0);
        let (exports, expected) = (BTreeMap::new(), BTreeMap::new());
        let fences = Fences::default();
        state.nodes.insert(process, Node { memory, fences, exports, expected, layers_done: 0, alive: true });
        state.listening.insert(engine, process);
        Port { engine, process, fabric: self.clone() }
    }

    /// What becomes final with the newest layer can be offered. The real links look at the counter by themselves.
    pub(crate) fn layers_done(&self, process: ProcessId, layers_done: u64) {
        lock(&self.0).layers_done(process, layers_done);
    }

    /// The process has died: its links break, and its address no longer answers.
    pub(crate) fn leave(&self, process: ProcessId) {
        let mut state = lock(&self.0);
        state.listening.retain(|_, listening| *listening != process);
        if let Some(node) = state.nodes.get_mut(&process) {
            node.alive = false;
        }
        let to: Vec<_> = state.links.iter().filter(|(_, link)| link.to == Some(process)).map(|(id, _)| *id).collect();
        for link in to {
            state.break_link(link);
        }
    }

    /// The process whose thread handles this event; `None` if the link is gone.
    pub(crate) fn actor(&self, link: LinkId, event: &LinkEvent) -> Option<ProcessId> {
        let state = lock(&self.0);
        let link = state.links.get(&link)?;
        match event {
            LinkEvent::Work | LinkEvent::Write | LinkEvent::Taken { .. } | LinkEvent::Outcome(..) => Some(link.from),
            LinkEvent::Connect => link.to.or(Some(link.from)),
            LinkEvent::Arrived | LinkEvent::Stray(_) | LinkEvent::Check => link.to,
        }
    }

    pub(crate) fn handle(&self, link: LinkId, event: LinkEvent) {
        lock(&self.0).handle(link, event);
    }

    /// A connection breaks, if there is one.
    pub(crate) fn break_any(&self) {
        let mut state = lock(&self.0);
        let alive: Vec<_> = state.links.iter().filter(|(_, link)| link.alive).map(|(id, _)| *id).collect();
        if !alive.is_empty() {
            let link = state.random.pick(&alive);
            state.break_link(link);
        }
    }

    /// Closes a fence that a planted bug has kept open.
    pub(crate) fn close_late(&self, process: ProcessId, export: ExportId) {
        lock(&self.0).close(process, export);
    }

    pub(crate) fn calm(&self, transfers: Transfers) {
        lock(&self.0).transfers = transfers;
    }

    pub(crate) fn counts(&self) -> TransferCounts {
        lock(&self.0).counts
    }

    /// Reservations and fences that running processes have left open.
    pub(crate) fn left_open(&self) -> Vec<String> {
        let state = lock(&self.0);
        let of = |(id, node): (&ProcessId, &Node)| {
            let (expected, exports) = (node.expected.len(), node.exports.len());
            (node.alive && expected + exports > 0)
                .then(|| format!("{id:?} expects {expected} hand-offs and has {exports} fences up"))
        };
        state.nodes.iter().filter_map(of).collect()
    }
}

impl State {
    fn send_input(&mut self, process: ProcessId, input: Input) {
        let delay = self.random.micros(1, 50);
        self.clock.after(delay, Event::Input(process, input));
    }

    fn exported(&mut self, process: ProcessId, export: ExportId, outcome: Result<Exported, String>) {
        self.log.record(LogEntry::Exported {
            process,
            export,
            verified: outcome.as_ref().ok().map(|exported| exported.verified_tokens),
        });
        self.send_input(process, Input::Exported(export, outcome));
    }
}
