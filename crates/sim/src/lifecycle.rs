//! Starts, orderly ends and crashes of engines and routers.

use std::sync::Arc;
use std::time::Duration;

use crate::event::Event;
use crate::event_log::Checker;
use crate::executor::Owner;
use crate::ids::ProcessId;
use crate::log_entry::LogEntry;
use crate::peer::{Peer, PeerKind};
use crate::process::Process;
use crate::totals::Sum;
use crate::world::World;

impl World {
    pub(crate) fn restart_if(&mut self, has_ended: bool, id: ProcessId) {
        if has_ended {
            self.end_engine(id, "drained");
            let down = self.random.millis(1, 100);
            self.clock.after(down, Event::StartEngine(id.engine));
        }
    }

    pub(crate) fn start_engine(&mut self, engine: usize) {
        if self.processes[engine].is_some() {
            return;
        }
        self.incarnations += 1;
        let id = ProcessId { engine, incarnation: self.incarnations };
        let (clock, log) = (Arc::clone(&self.clock), Arc::clone(&self.log));
        match Process::start(id, (&self.scenario, self.mutation), clock, log, &self.fabric, self.random.fork()) {
            Ok(process) => {
                self.processes[engine] = Some(process);
                if self.scenario.hangs.is_some() {
                    self.clock.after(Duration::ZERO, Event::MakeHeartbeat(id));
                }
            }
            Err(error) => self.log.report_violation(Checker::Progress, error.to_string()),
        }
    }

    /// Ends an engine in order: its last replies are sent first.
    fn end_engine(&mut self, id: ProcessId, why: &'static str) {
        let Some(mut process) = self.processes[id.engine].take_if(|process| process.id == id) else { return };
        process.release_all();
        self.remove(process, why);
    }

    pub(crate) fn kill_engine(&mut self, engine: usize, why: &'static str) {
        let Some(mut process) = self.processes[engine].take() else { return };
        // Connections close first, so that the replies of `release_all` reach no router.
        self.close_connections(process.id);
        self.fabric.leave(process.id);
        process.release_all();
        self.remove(process, why);
    }

    fn remove(&mut self, process: Process, why: &'static str) {
        self.close_connections(process.id);
        self.fabric.leave(process.id);
        self.past.engines.add(&process.report.counters);
        self.past.hangs.slow_steps += process.progress.slow_steps;
        self.log.record(LogEntry::Gone(process.id, why));
    }

    fn close_connections(&self, process: ProcessId) {
        for connection in self.connections.values().filter(|connection| connection.process == process) {
            connection.wire.engine_gone();
        }
    }

    pub(crate) fn resume_engine(&mut self, id: ProcessId) {
        let kept = self.process(id).map(Process::resume).unwrap_or_default();
        for event in kept {
            self.dispatch(event);
        }
    }

    pub(crate) fn start_router(&mut self, router: usize) {
        if self.peers[router].is_some() {
            return;
        }
        self.incarnations += 1;
        let setup = &self.scenario.routers[router];
        let peer =
            Peer::router(self.incarnations, setup, &self.scenario, Arc::clone(&self.clock), self.executor.spawner());
        self.add_peer(router, peer);
    }

    pub(crate) fn add_peer(&mut self, at: usize, peer: Peer) {
        let incarnation = peer.incarnation;
        if peer.monitor.is_some() {
            self.clock.after(Duration::ZERO, Event::Check { peer: at, incarnation });
        }
        self.peers[at] = Some(peer);
        for engine in 0..self.scenario.engines.len() {
            let delay = self.random.micros(50, 3000);
            self.clock.after(delay, Event::Connect { peer: at, incarnation, engine });
        }
    }

    pub(crate) fn kill_router(&mut self, router: usize) {
        let Some(peer) = self.peers[router].take() else { return };
        self.requests.router_died(peer.incarnation);
        // Connections close first, so that dropping the tasks below sends nothing.
        for wire in peer.wires.iter().flatten() {
            if let Some(connection) = self.connections.get(wire) {
                connection.wire.router_gone();
            }
        }
        if let PeerKind::Router { dispatcher, .. } = &peer.kind {
            self.past.routers.add(&dispatcher.counters());
        }
        self.executor.kill(Owner::Router(peer.incarnation));
    }
}
