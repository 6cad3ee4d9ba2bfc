//! Engines, routers, clients and the network between them. Pops one event after the other, lets tasks run in between, and
//! stops at the first broken rule.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::client_requests::ClientRequests;
use crate::clock::{Clock, Due};
use crate::connection::Connection;
use crate::event::Event;
use crate::event_log::{Checker, EventLog};
use crate::executor::Executor;
use crate::fabric::Fabric;
use crate::ids::{ProcessId, WireId};
use crate::mutation::Mutation;
use crate::peer::Peer;
use crate::process::Process;
use crate::random::Random;
use crate::scenario::Scenario;
use crate::totals::Past;

/// A run of a few hundred milliseconds has some ten thousand.
const MAX_EVENTS: usize = 2_000_000;
/// Once nothing goes wrong any more, no request waits longer: a few times what a router's patience lasts.
pub(crate) const DEADLINE: Duration = Duration::from_secs(15);

pub(crate) struct World {
    pub(crate) scenario: Scenario,
    pub(crate) random: Random,
    pub(crate) clock: Arc<Clock>,
    pub(crate) log: Arc<EventLog>,
    pub(crate) requests: Arc<ClientRequests>,
    pub(crate) executor: Executor,
    pub(crate) fabric: Fabric,
    pub(crate) mutation: Option<Mutation>,
    pub(crate) processes: Vec<Option<Process>>,
    /// Routers, then the callers without one.
    pub(crate) peers: Vec<Option<Peer>>,
    pub(crate) connections: BTreeMap<WireId, Connection>,
    pub(crate) incarnations: u64,
    pub(crate) next_wire: u64,
    pub(crate) next_client: u64,
    pub(crate) phase: Phase,
    pub(crate) past: Past,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Faults are injected.
    Faults,
    /// No more faults; requests that are open end.
    Calm,
    /// Every router gets requests once more, and all of them must succeed.
    Final,
}

impl World {
    /// Runs to the end, or to the first broken rule.
    pub(crate) fn run(&mut self) {
        self.start_deployment();
        for _ in 0..MAX_EVENTS {
            let log = Arc::clone(&self.log);
            if !self.executor.run(|task| log.count(task)) {
                self.log.report_violation(Checker::Progress, "a task wakes itself for ever");
            }
            if self.log.violation().is_some() {
                return;
            }
            if self.phase == Phase::Calm && self.requests.is_empty() {
                self.phase = Phase::Final;
                self.restart_frozen();
                self.send_final_requests();
                continue;
            }
            match self.clock.advance() {
                Some(Due::Wake(waker)) => waker.wake(),
                Some(Due::Event(event)) => self.dispatch(event),
                None => return self.check_at_rest(),
            }
        }
        self.log.report_violation(Checker::Progress, format!("still busy after {MAX_EVENTS} events"));
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
        let (peer, incarnation) = match event {
            Event::ToRouter(wire) | Event::RouterSeesEnd(wire) | Event::Heartbeat(wire) => {
                let connection = self.connections.get(wire)?;
                (connection.peer, connection.peer_incarnation)
            }
            Event::Check { peer, incarnation } | Event::Connect { peer, incarnation, .. } => (*peer, *incarnation),
            _ => return None,
        };
        self.peers[peer].as_mut().filter(|peer| peer.incarnation == incarnation)
    }

    fn actor(&self, event: &Event) -> Option<ProcessId> {
        match event {
            Event::Boundary(process) | Event::Layer(process, _) | Event::Stepped(process) => Some(*process),
            Event::MakeHeartbeat(process) => Some(*process),
            Event::Input(process, _) | Event::WriteLate(process) => Some(*process),
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
            Event::ToEngine(wire) => self.deliver_command(wire),
            Event::ToRouter(wire) => self.deliver_reply(wire),
            Event::EngineSeesEnd(wire) => self.engine_sees_end(wire),
            Event::RouterSeesEnd(wire) => self.router_sees_end(wire),
            Event::Heartbeat(wire) => self.deliver_heartbeat(wire),
            Event::MakeHeartbeat(process) => self.send_heartbeat(process),
            Event::Check { peer, incarnation } => self.check_heartbeats(peer, incarnation),
            Event::Boundary(id) => {
                let has_ended = self.process(id).is_some_and(Process::step_boundary);
                self.restart_if(has_ended, id);
            }
            Event::Layer(id, layer) => {
                if let Some(process) = self.process(id) {
                    let layers_done = process.layer_done(layer);
                    self.fabric.layers_done(id, layers_done);
                }
            }
            Event::Stepped(id) => {
                let has_ended = self.process(id).is_some_and(Process::stepped);
                self.restart_if(has_ended, id);
            }
            Event::WriteLate(id) => {
                if let Some(process) = self.process(id) {
                    process.write_late();
                }
            }
            Event::Input(id, input) => {
                if let Some(process) = self.process(id) {
                    process.receive(input);
                }
            }
            Event::Link(link, event) => self.fabric.handle(link, event),
            Event::CloseFence(process, export) => self.fabric.close_late(process, export),
            Event::StartEngine(engine) => self.start_engine(engine),
            Event::ResumeEngine(process) => self.resume_engine(process),
            Event::StartRouter(router) => self.start_router(router),
            Event::ResumeRouter(router) => self.resume_router(router),
            Event::ChangeRouter(router) => self.change_router(router),
            Event::Connect { peer, incarnation, engine } => self.connect(peer, incarnation, engine),
            Event::Client => self.send_request(),
            Event::Script => self.start_script(),
            Event::Fault(fault) => self.inject(fault),
            Event::EndFaults => self.end_faults(),
            Event::Deadline => {
                let waiting = self.requests.waiting();
                if !waiting.is_empty() {
                    self.log.report_violation(Checker::Deadline, format!("clients {waiting:?} still wait"));
                }
            }
        }
    }

    /// Nothing is due any more and no request waits: nothing may be held either.
    fn check_at_rest(&mut self) {
        let mut left: Vec<_> = self.processes.iter().flatten().filter_map(Process::leftovers).collect();
        left.extend(self.peers.iter().flatten().flat_map(Peer::leftovers));
        left.extend(self.connections.iter().filter_map(|(wire, connection)| connection.leftovers(*wire)));
        left.extend(self.fabric.left_open());
        if self.executor.tasks() > 0 {
            left.push(format!("{} tasks wait for nothing", self.executor.tasks()));
        }
        if self.phase != Phase::Final || !self.requests.is_empty() {
            let message = format!("all is at rest, but clients {:?} wait", self.requests.waiting());
            self.log.report_violation(Checker::Progress, message);
        } else if !left.is_empty() {
            self.log.report_violation(Checker::Leak, left.join("; "));
        } else {
            self.check_prefix_indexes();
        }
    }
}

impl Drop for World {
    fn drop(&mut self) {
        for process in self.processes.iter_mut().flatten() {
            process.release_all();
        }
    }
}
