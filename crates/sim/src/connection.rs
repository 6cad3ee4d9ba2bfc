//! Sessions between routers and engines. The two ends may notice the end of a connection at different times.

use std::sync::Arc;

use baton_protocol::SessionId;

use crate::event::{Event, Input};
use crate::ids::{ProcessId, WireId};
use crate::log_entry::LogEntry;
use crate::mutation::Tamper;
use crate::session::{HeartbeatSource, Session};
use crate::wire::{Replies, Wire, describe_reply};
use crate::world::{Phase, World};

pub(crate) struct Connection {
    pub(crate) wire: Arc<Wire>,
    pub(crate) peer: usize,
    pub(crate) peer_incarnation: u64,
    pub(crate) process: ProcessId,
    session: SessionId,
    client: Arc<Session>,
}

impl Connection {
    /// Streams that were never closed.
    pub(crate) fn leftovers(&self, wire: WireId) -> Option<String> {
        let open = self.client.open.count();
        (open > 0).then(|| format!("{open} requests are open on {wire:?}"))
    }
}

impl World {
    pub(crate) fn deliver_command(&mut self, wire: WireId) {
        let Some(connection) = self.connections.get(&wire) else { return };
        let (id, session) = (connection.process, connection.session);
        if let Some(command) = connection.wire.arrive_at_engine()
            && let Some(process) = self.process(id)
        {
            process.receive(Input::Command(session, command));
        }
    }

    pub(crate) fn deliver_reply(&mut self, wire: WireId) {
        let Some(connection) = self.connections.get(&wire) else { return };
        if let Some(reply) = connection.wire.arrive_at_router()
            && self.is_alive(connection.peer, connection.peer_incarnation)
        {
            self.log.record(describe_reply(wire, &reply));
            connection.client.open.deliver(reply);
        }
    }

    pub(crate) fn deliver_heartbeat(&mut self, wire: WireId) {
        let Some(connection) = self.connections.get(&wire) else { return };
        if let Some(heartbeat) = connection.wire.next_heartbeat() {
            connection.client.open.receive(heartbeat);
        }
    }

    pub(crate) fn engine_sees_end(&mut self, wire: WireId) {
        let Some(connection) = self.connections.get(&wire) else { return };
        self.log.record(LogEntry::EngineLost(wire));
        connection.wire.engine_gone();
        let (id, session) = (connection.process, connection.session);
        if let Some(process) = self.process(id) {
            process.receive(Input::Close(session));
        }
    }

    pub(crate) fn router_sees_end(&mut self, wire: WireId) {
        let Some(connection) = self.connections.get(&wire) else { return };
        connection.wire.router_gone();
        connection.client.open.end();
        let (peer, incarnation, engine) = (connection.peer, connection.peer_incarnation, connection.process.engine);
        if !self.is_alive(peer, incarnation) {
            return;
        }
        self.log.record(LogEntry::RouterLost(wire));
        if let Some(Some(peer)) = self.peers.get_mut(peer)
            && peer.wires[engine] == Some(wire)
        {
            peer.lost(engine);
        }
        let delay = self.random.millis(1, 30);
        self.clock.after(delay, Event::Connect { peer, incarnation, engine });
    }

    fn is_alive(&self, peer: usize, incarnation: u64) -> bool {
        self.peers[peer].as_ref().is_some_and(|peer| peer.incarnation == incarnation)
    }

    /// Retries until the engine accepts.
    pub(crate) fn connect(&mut self, at: usize, incarnation: u64, engine: usize) {
        if !self.is_alive(at, incarnation) {
            return;
        }
        let info = match &self.processes[engine] {
            Some(process) if !process.is_stopped() => process.info(&self.scenario),
            _ => {
                let delay = self.random.millis(5, 40);
                return self.clock.after(delay, Event::Connect { peer: at, incarnation, engine });
            }
        };
        let id = WireId(self.next_wire);
        self.next_wire += 1;
        let network = if self.phase == Phase::Faults { self.scenario.network } else { self.scenario.network.calm() };
        let (clock, log) = (Arc::clone(&self.clock), Arc::clone(&self.log));
        let wire = Wire::new(id, clock, log, self.random.fork(), network, Tamper::new(self.mutation));
        let client = Session::new(info, &wire, self.scenario.hangs.map(|_| HeartbeatSource::with(self.mutation)));
        if let (Some(process), Some(peer)) = (&mut self.processes[engine], &mut self.peers[at])
            && peer.wires[engine].is_none()
        {
            let session = process.open_session(Box::new(Replies(Arc::clone(&wire))));
            let process = process.id;
            self.log.record(LogEntry::Connected { wire: id, router: at, to: process });
            peer.connected(engine, id, Arc::clone(&client));
            self.connections
                .insert(id, Connection { wire, peer: at, peer_incarnation: incarnation, process, session, client });
        }
    }
}
