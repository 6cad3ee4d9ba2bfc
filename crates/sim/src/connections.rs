//! Sessions between routers and engines. The two ends may notice the end of a connection at different times.

use std::sync::Arc;

use baton_protocol::SessionId;

use crate::happening::Happening;
use crate::machine::{Letter, ProcessId};
use crate::mutation::Tamper;
use crate::session::{Beats, Session};
use crate::wire::{Wire, WireId, describe_reply};
use crate::world::{Event, Phase, World};

pub(crate) struct Connection {
    pub(crate) wire: Arc<Wire>,
    pub(crate) peer: usize,
    pub(crate) peer_life: u64,
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
    pub(crate) fn command_arrives(&mut self, wire: WireId) {
        let Some(connection) = self.connections.get(&wire) else { return };
        let (id, session) = (connection.process, connection.session);
        if let Some(command) = connection.wire.arrive_at_engine()
            && let Some(process) = self.process(id)
        {
            process.receive(Letter::Command(session, command));
        }
    }

    pub(crate) fn reply_arrives(&mut self, wire: WireId) {
        let Some(connection) = self.connections.get(&wire) else { return };
        if let Some(reply) = connection.wire.arrive_at_router()
            && self.is_alive(connection.peer, connection.peer_life)
        {
            self.journal.note(describe_reply(wire, &reply));
            connection.client.open.deliver(reply);
        }
    }

    pub(crate) fn heartbeat_arrives(&mut self, wire: WireId) {
        let Some(connection) = self.connections.get(&wire) else { return };
        if let Some(heartbeat) = connection.wire.hear_beat() {
            connection.client.open.receive(heartbeat);
        }
    }

    pub(crate) fn engine_sees_end(&mut self, wire: WireId) {
        let Some(connection) = self.connections.get(&wire) else { return };
        self.journal.note(Happening::EngineLost(wire));
        connection.wire.engine_gone();
        let (id, session) = (connection.process, connection.session);
        if let Some(process) = self.process(id) {
            process.receive(Letter::Close(session));
        }
    }

    pub(crate) fn router_sees_end(&mut self, wire: WireId) {
        let Some(connection) = self.connections.get(&wire) else { return };
        connection.wire.router_gone();
        connection.client.open.end();
        let (peer, life, engine) = (connection.peer, connection.peer_life, connection.process.engine);
        if !self.is_alive(peer, life) {
            return;
        }
        self.journal.note(Happening::RouterLost(wire));
        if let Some(Some(peer)) = self.peers.get_mut(peer)
            && peer.wires[engine] == Some(wire)
        {
            peer.lost(engine);
        }
        let delay = self.random.millis(1, 30);
        self.clock.after(delay, Event::Connect { peer, life, engine });
    }

    fn is_alive(&self, peer: usize, life: u64) -> bool {
        self.peers[peer].as_ref().is_some_and(|peer| peer.life == life)
    }

    /// Retries until the engine accepts.
    pub(crate) fn connect(&mut self, at: usize, life: u64, engine: usize) {
        if !self.is_alive(at, life) {
            return;
        }
        let info = match &self.processes[engine] {
            Some(process) if !process.is_stopped() => process.info(&self.weather),
            _ => {
                let delay = self.random.millis(5, 40);
                return self.clock.after(delay, Event::Connect { peer: at, life, engine });
            }
        };
        let id = WireId(self.next_wire);
        self.next_wire += 1;
        let network = if self.phase == Phase::Storm { self.weather.network } else { self.weather.network.calm() };
        let (clock, journal) = (Arc::clone(&self.clock), Arc::clone(&self.journal));
        let wire = Wire::new(id, clock, journal, self.random.fork(), network, Tamper::new(self.mutation));
        let client = Session::new(info, &wire, self.weather.hangs.map(|_| Beats::with(self.mutation)));
        if let (Some(process), Some(peer)) = (&mut self.processes[engine], &mut self.peers[at])
            && peer.wires[engine].is_none()
        {
            let session = process.open_session(Arc::clone(&wire));
            let process = process.id;
            self.journal.note(Happening::Connected { wire: id, router: at, to: process });
            peer.connected(engine, id, Arc::clone(&client));
            self.connections.insert(id, Connection { wire, peer: at, peer_life: life, process, session, client });
        }
    }
}
