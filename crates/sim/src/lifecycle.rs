//! Starts, orderly ends and crashes of engines and routers.

use std::sync::Arc;
use std::time::Duration;

use crate::executor::Owner;
use crate::happening::Happening;
use crate::journal::Checker;
use crate::machine::{Life, Process, ProcessId};
use crate::router::{Peer, PeerKind};
use crate::totals::Sum;
use crate::world::{Event, World};

impl World {
    pub(crate) fn after(&mut self, id: ProcessId, life: Option<Life>) {
        if life == Some(Life::Ended) {
            self.end_engine(id, "drained");
            let down = self.random.millis(1, 100);
            self.clock.after(down, Event::StartEngine(id.engine));
        }
    }

    pub(crate) fn start_engine(&mut self, engine: usize) {
        if self.processes[engine].is_some() {
            return;
        }
        self.lives += 1;
        let id = ProcessId { engine, life: self.lives };
        let (clock, journal) = (Arc::clone(&self.clock), Arc::clone(&self.journal));
        match Process::start(id, (&self.weather, self.mutation), clock, journal, &self.fabric, self.random.fork()) {
            Ok(process) => {
                self.processes[engine] = Some(process);
                if self.weather.hangs.is_some() {
                    self.clock.after(Duration::ZERO, Event::Beat(id));
                }
            }
            Err(error) => self.journal.blame(Checker::Progress, error.to_string()),
        }
    }

    /// Ends an engine in order: its last replies are sent first.
    fn end_engine(&mut self, id: ProcessId, why: &'static str) {
        let Some(mut process) = self.processes[id.engine].take_if(|process| process.id == id) else { return };
        process.close_books();
        self.remove(process, why);
    }

    pub(crate) fn kill_engine(&mut self, engine: usize, why: &'static str) {
        let Some(mut process) = self.processes[engine].take() else { return };
        // Connections close first, so that the replies of `close_books` reach nobody.
        self.close_connections(process.id);
        self.fabric.leave(process.id);
        process.close_books();
        self.remove(process, why);
    }

    fn remove(&mut self, process: Process, why: &'static str) {
        self.close_connections(process.id);
        self.fabric.leave(process.id);
        self.past.engines.add(&process.report.counters);
        self.past.hangs.slow_steps += process.pulse.slow_steps;
        self.journal.note(Happening::Gone(process.id, why));
    }

    fn close_connections(&self, process: ProcessId) {
        for connection in self.connections.values().filter(|connection| connection.process == process) {
            connection.wire.engine_gone();
        }
    }

    pub(crate) fn go_on(&mut self, id: ProcessId) {
        let kept = self.process(id).map(Process::go_on).unwrap_or_default();
        for event in kept {
            self.dispatch(event);
        }
    }

    pub(crate) fn start_router(&mut self, router: usize) {
        if self.peers[router].is_some() {
            return;
        }
        self.lives += 1;
        let set_up = &self.weather.routers[router];
        let peer = Peer::router(self.lives, set_up, &self.weather, Arc::clone(&self.clock), self.executor.spawner());
        self.add_peer(router, peer);
    }

    pub(crate) fn add_peer(&mut self, at: usize, peer: Peer) {
        let life = peer.life;
        if peer.monitor.is_some() {
            self.clock.after(Duration::ZERO, Event::Check { peer: at, life });
        }
        self.peers[at] = Some(peer);
        for engine in 0..self.weather.engines.len() {
            let delay = self.random.micros(50, 3000);
            self.clock.after(delay, Event::Connect { peer: at, life, engine });
        }
    }

    pub(crate) fn kill_router(&mut self, router: usize) {
        let Some(peer) = self.peers[router].take() else { return };
        self.book.router_died(peer.life);
        // Connections close first, so that dropping the tasks below sends nothing.
        for wire in peer.wires.iter().flatten() {
            if let Some(connection) = self.connections.get(wire) {
                connection.wire.router_gone();
            }
        }
        if let PeerKind::Router { dispatcher, .. } = &peer.kind {
            self.past.routers.add(&dispatcher.counters());
        }
        self.executor.kill(Owner::Router(peer.life));
    }
}
