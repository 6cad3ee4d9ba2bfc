//! Engines, routers, clients and the network between them. Pops one event after the other, lets tasks run in between, and
//! stops at the first broken rule.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use baton_engine::ExportId;

use crate::book::Book;
use crate::clock::{Clock, Due};
use crate::connections::Connection;
use crate::executor::Executor;
use crate::fabric::{Fabric, LinkEvent, LinkId};
use crate::faults::Fault;
use crate::journal::{Checker, Journal};
use crate::machine::{Letter, Process, ProcessId};
use crate::mutation::Mutation;
use crate::random::Random;
use crate::router::Peer;
use crate::totals::Past;
use crate::weather::Weather;
use crate::wire::WireId;

/// A run of a few hundred milliseconds has some ten thousand.
const MAX_EVENTS: usize = 2_000_000;
/// Once nothing goes wrong any more, nobody waits longer: a few times what a router's patience lasts.
pub(crate) const DEADLINE: Duration = Duration::from_secs(15);

pub(crate) enum Event {
    ToEngine(WireId),
    ToRouter(WireId),
    EngineSeesEnd(WireId),
    RouterSeesEnd(WireId),
    /// Arrives at a router.
    Heartbeat(WireId),
    /// A process makes one.
    Beat(ProcessId),
    /// A router looks at those that have arrived.
    Check {
        peer: usize,
        life: u64,
    },
    Boundary(ProcessId),
    Layer(ProcessId, u32),
    Stepped(ProcessId),
    /// A planted bug: a step that counts as done writes its last layer.
    WriteLate(ProcessId),
    Letter(ProcessId, Letter),
    Link(LinkId, LinkEvent),
    CloseFence(ProcessId, ExportId),
    StartEngine(usize),
    GoOn(ProcessId),
    StartRouter(usize),
    ResumeRouter(usize),
    Connect {
        peer: usize,
        life: u64,
        engine: usize,
    },
    Client,
    Script,
    Fault(Fault),
    Heal,
    Deadline,
}

pub(crate) struct World {
    pub(crate) weather: Weather,
    pub(crate) random: Random,
    pub(crate) clock: Arc<Clock>,
    pub(crate) journal: Arc<Journal>,
    pub(crate) book: Arc<Book>,
    pub(crate) executor: Executor,
    pub(crate) fabric: Fabric,
    pub(crate) mutation: Option<Mutation>,
    pub(crate) processes: Vec<Option<Process>>,
    /// Routers, then the callers without one.
    pub(crate) peers: Vec<Option<Peer>>,
    pub(crate) connections: BTreeMap<WireId, Connection>,
    pub(crate) lives: u64,
    pub(crate) next_wire: u64,
    pub(crate) next_client: u64,
    pub(crate) phase: Phase,
    pub(crate) past: Past,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    Storm,
    /// Nothing goes wrong any more; what was asked is answered.
    Healed,
    /// Everybody is asked once more, and has no excuse.
    Proof,
}

impl World {
    /// Runs to the end, or to the first broken rule.
    pub(crate) fn run(&mut self) {
        self.populate();
        for _ in 0..MAX_EVENTS {
            let journal = Arc::clone(&self.journal);
            if !self.executor.run(|task| journal.count(task)) {
                self.journal.blame(Checker::Progress, "a task wakes itself for ever");
            }
            if self.journal.violation().is_some() {
                return;
            }
            if self.phase == Phase::Healed && self.book.is_empty() {
                self.phase = Phase::Proof;
                self.thaw();
                self.ask_for_proof();
                continue;
            }
            match self.clock.advance() {
                Some(Due::Wake(waker)) => waker.wake(),
                Some(Due::Event(event)) => self.dispatch(event),
                None => return self.check_at_rest(),
            }
        }
        self.journal.blame(Checker::Progress, format!("still busy after {MAX_EVENTS} events"));
    }

    /// A process that is stopped does nothing; one that is gone does nothing for ever.
    pub(crate) fn dispatch(&mut self, event: Event) {
        if let Some(peer) = self.peer_of(&event)
            && let Some(kept) = &mut peer.suspended
        {
            return kept.push_back(event);
        }
        let Some(actor) = self.actor(&event) else { return self.handle(event) };
        let Some(process) = self.process(actor) else { return };
        if let Some(event) = process.keep(event) {
            self.handle(event);
        }
    }

    /// The router, if it still lives, that this happens to.
    fn peer_of(&mut self, event: &Event) -> Option<&mut Peer> {
        let (peer, life) = match event {
            Event::ToRouter(wire) | Event::RouterSeesEnd(wire) | Event::Heartbeat(wire) => {
                let connection = self.connections.get(wire)?;
                (connection.peer, connection.peer_life)
            }
            Event::Check { peer, life } | Event::Connect { peer, life, .. } => (*peer, *life),
            _ => return None,
        };
        self.peers[peer].as_mut().filter(|peer| peer.life == life)
    }

    fn actor(&self, event: &Event) -> Option<ProcessId> {
        match event {
            Event::Boundary(process) | Event::Layer(process, _) | Event::Stepped(process) => Some(*process),
            Event::Beat(process) => Some(*process),
            Event::Letter(process, _) | Event::WriteLate(process) => Some(*process),
            Event::ToEngine(wire) | Event::EngineSeesEnd(wire) => {
                self.connections.get(wire).map(|connection| connection.process)
            }
            Event::Link(link, event) => self.fabric.actor(*link, event),
            _ => None,
        }
    }

    pub(crate) fn process(&mut self, id: ProcessId) -> Option<&mut Process> {
        self.processes[id.engine].as_mut().filter(|process| process.id == id)
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::ToEngine(wire) => self.command_arrives(wire),
            Event::ToRouter(wire) => self.reply_arrives(wire),
            Event::EngineSeesEnd(wire) => self.engine_sees_end(wire),
            Event::RouterSeesEnd(wire) => self.router_sees_end(wire),
            Event::Heartbeat(wire) => self.heartbeat_arrives(wire),
            Event::Beat(process) => self.beat(process),
            Event::Check { peer, life } => self.check_heartbeats(peer, life),
            Event::Boundary(id) => {
                let life = self.process(id).map(Process::boundary);
                self.after(id, life);
            }
            Event::Layer(id, layer) => {
                if let Some(process) = self.process(id) {
                    let layers_done = process.layer_done(layer);
                    self.fabric.layers_done(id, layers_done);
                }
            }
            Event::Stepped(id) => {
                let life = self.process(id).map(Process::stepped);
                self.after(id, life);
            }
            Event::WriteLate(id) => {
                if let Some(process) = self.process(id) {
                    process.write_late();
                }
            }
            Event::Letter(id, letter) => {
                if let Some(process) = self.process(id) {
                    process.receive(letter);
                }
            }
            Event::Link(link, event) => self.fabric.handle(link, event),
            Event::CloseFence(process, export) => self.fabric.close_late(process, export),
            Event::StartEngine(engine) => self.start_engine(engine),
            Event::GoOn(process) => self.go_on(process),
            Event::StartRouter(router) => self.start_router(router),
            Event::ResumeRouter(router) => self.resume_router(router),
            Event::Connect { peer, life, engine } => self.connect(peer, life, engine),
            Event::Client => self.ask(),
            Event::Script => self.start_script(),
            Event::Fault(fault) => self.strike(fault),
            Event::Heal => self.heal(),
            Event::Deadline => {
                let waiting = self.book.waiting();
                if !waiting.is_empty() {
                    self.journal.blame(Checker::Deadline, format!("clients {waiting:?} still wait"));
                }
            }
        }
    }

    /// Nothing is due any more and nobody waits: nothing may be held either.
    fn check_at_rest(&self) {
        let mut left: Vec<_> = self.processes.iter().flatten().filter_map(Process::leftovers).collect();
        left.extend(self.peers.iter().flatten().flat_map(Peer::leftovers));
        left.extend(self.connections.iter().filter_map(|(wire, connection)| connection.leftovers(*wire)));
        left.extend(self.fabric.left_open());
        if self.executor.tasks() > 0 {
            left.push(format!("{} tasks wait for nothing", self.executor.tasks()));
        }
        if self.phase != Phase::Proof || !self.book.is_empty() {
            let message = format!("all is at rest, but clients {:?} wait", self.book.waiting());
            self.journal.blame(Checker::Progress, message);
        } else if !left.is_empty() {
            self.journal.blame(Checker::Leak, left.join("; "));
        }
    }
}

impl Drop for World {
    fn drop(&mut self) {
        for process in self.processes.iter_mut().flatten() {
            process.close_books();
        }
    }
}
