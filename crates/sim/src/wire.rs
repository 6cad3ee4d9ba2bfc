//! One native session's connection. Like TCP it delivers in order or breaks: a lost message is a lost connection, which the two
//! ends may notice at very different times.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use baton_core::{EngineEvent, ServeError};
use baton_engine::Outbox;
use baton_protocol::{Command, CommandSink, Heartbeat, StepReply};

use crate::clock::{Clock, lock};
use crate::event::Event;
use crate::event_log::EventLog;
use crate::ids::WireId;
use crate::log_entry::LogEntry;
use crate::mutation::Tamper;
use crate::random::Random;
use crate::scenario::Network;

pub(crate) struct Wire {
    id: WireId,
    clock: Arc<Clock>,
    log: Arc<EventLog>,
    state: Mutex<State>,
}

struct State {
    random: Random,
    network: Network,
    tamper: Tamper,
    up: Direction<Command>,
    down: Direction<StepReply>,
    /// On their way beside replies, in the same order.
    heartbeats_in_flight: VecDeque<Heartbeat>,
    cache_updates_lost: u64,
    newest_cache_update_is_lost: bool,
    /// When the newest request was sent.
    last_request_at: Duration,
    /// Nothing arrives any more, though the ends may not have noticed.
    cut: bool,
}

struct Direction<T> {
    queue: VecDeque<T>,
    /// When the newest message arrives: no later message overtakes it.
    last_due: Duration,
    /// The sender has not closed it.
    open: bool,
}

impl<T> Default for Direction<T> {
    fn default() -> Self {
        Self { queue: VecDeque::new(), last_due: Duration::ZERO, open: true }
    }
}

impl Wire {
    pub(crate) fn new(
        id: WireId,
        clock: Arc<Clock>,
        log: Arc<EventLog>,
        random: Random,
        network: Network,
        tamper: Tamper,
    ) -> Arc<Self> {
        let (up, down) = (Direction::default(), Direction::default());
        let (heartbeats_in_flight, last_request_at) = (VecDeque::new(), Duration::ZERO);
        let state = State {
            random,
            network,
            tamper,
            up,
            down,
            heartbeats_in_flight,
            cache_updates_lost: 0,
            newest_cache_update_is_lost: false,
            last_request_at,
            cut: false,
        };
        Arc::new(Self { id, clock, log, state: Mutex::new(state) })
    }

    /// The router's side.
    fn send(&self, mut command: Command) -> Result<(), ServeError> {
        let mut state = lock(&self.state);
        if !state.up.open {
            return Err(ServeError::engine("engine session: the peer closed the connection"));
        }
        self.log.record(describe(self.id, &command));
        if command.opens().is_some() {
            state.last_request_at = self.clock.now();
        }
        if !state.tamper.filter(&mut command) {
            return Ok(());
        }
        // As in the real session: the engine has the prompt from the reservation.
        if let Command::Generate { request, reservation: Some(_) } = &mut command {
            request.prompt = Arc::from([]);
        }
        if self.is_delivered(&mut state) {
            let due = state.due(self.clock.now(), |state| &mut state.up.last_due);
            state.up.queue.push_back(command);
            self.clock.at(due, Event::ToEngine(self.id));
        }
        Ok(())
    }

    /// Called by the engine. Returns `false` once its end is closed.
    fn reply(&self, mut reply: StepReply) -> bool {
        let mut state = lock(&self.state);
        if state.down.open && self.is_delivered(&mut state) {
            self.lose_cache_update(&mut state, &mut reply);
            let due = state.due(self.clock.now(), |state| &mut state.down.last_due);
            state.down.queue.push_back(reply);
            self.clock.at(due, Event::ToRouter(self.id));
        }
        state.down.open
    }

    /// No connection does this; an engine does it to one that is far behind.
    fn lose_cache_update(&self, state: &mut State, reply: &mut StepReply) {
        let Some(update) = &reply.cache else { return };
        let loss = state.network.cache_loss_per_mille;
        state.newest_cache_update_is_lost = !update.events.is_empty() && state.random.per_mille(loss);
        if state.newest_cache_update_is_lost {
            reply.cache = None;
            state.cache_updates_lost += 1;
            self.log.record(LogEntry::CacheUpdateLost(self.id));
        }
    }

    pub(crate) fn cache_updates_lost(&self) -> u64 {
        lock(&self.state).cache_updates_lost
    }

    /// No later reply has shown that yet.
    pub(crate) fn newest_cache_update_is_lost(&self) -> bool {
        lock(&self.state).newest_cache_update_is_lost
    }

    /// Called by the engine's process, whatever its step loop does.
    pub(crate) fn send_heartbeat(&self, heartbeat: Heartbeat) {
        let mut state = lock(&self.state);
        if state.down.open && self.is_delivered(&mut state) {
            let due = state.due(self.clock.now(), |state| &mut state.down.last_due);
            state.heartbeats_in_flight.push_back(heartbeat);
            self.clock.at(due, Event::Heartbeat(self.id));
        }
    }

    pub(crate) fn next_heartbeat(&self) -> Option<Heartbeat> {
        lock(&self.state).heartbeats_in_flight.pop_front()
    }

    /// When the newest request was sent on it.
    pub(crate) fn last_request_at(&self) -> Duration {
        lock(&self.state).last_request_at
    }

    pub(crate) fn arrive_at_engine(&self) -> Option<Command> {
        lock(&self.state).up.queue.pop_front()
    }

    pub(crate) fn arrive_at_router(&self) -> Option<StepReply> {
        let mut state = lock(&self.state);
        let mut reply = state.down.queue.pop_front()?;
        state.tamper.change(&mut reply);
        Some(reply)
    }

    /// Drops all messages in flight; each end notices at a time of its own.
    pub(crate) fn cut(&self) {
        let mut state = lock(&self.state);
        self.cut_now(&mut state);
    }

    /// The engine's process has ended. Earlier replies still arrive, then the end.
    pub(crate) fn engine_gone(&self) {
        let mut state = lock(&self.state);
        if std::mem::replace(&mut state.down.open, false) && !state.cut {
            let due = state.due(self.clock.now(), |state| &mut state.down.last_due);
            self.clock.at(due, Event::RouterSeesEnd(self.id));
        }
    }

    /// The router's process has ended, or it has closed the connection.
    pub(crate) fn router_gone(&self) {
        let mut state = lock(&self.state);
        if std::mem::replace(&mut state.up.open, false) && !state.cut {
            let due = state.due(self.clock.now(), |state| &mut state.up.last_due);
            self.clock.at(due, Event::EngineSeesEnd(self.id));
        }
    }

    /// From now on no message is lost.
    pub(crate) fn calm(&self, network: Network) {
        lock(&self.state).network = network;
    }

    fn is_delivered(&self, state: &mut State) -> bool {
        let loss = state.network.loss_per_mille;
        if !state.cut && state.random.per_mille(loss) {
            self.cut_now(state);
        }
        !state.cut
    }

    fn cut_now(&self, state: &mut State) {
        if std::mem::replace(&mut state.cut, true) {
            return;
        }
        self.log.record(LogEntry::Cut(self.id));
        state.up.queue.clear();
        state.down.queue.clear();
        state.heartbeats_in_flight.clear();
        for event in [Event::RouterSeesEnd(self.id), Event::EngineSeesEnd(self.id)] {
            let late = state.random.percent(25);
            let delay = if late { state.random.millis(20, 800) } else { state.random.micros(50, 2000) };
            self.clock.after(delay, event);
        }
    }
}

impl State {
    fn due(&mut self, now: Duration, last_due: impl Fn(&mut Self) -> &mut Duration) -> Duration {
        let delay = self.network.latency(&mut self.random);
        let due = (now + delay).max(*last_due(self));
        *last_due(self) = due;
        due
    }
}

/// The router's end.
#[derive(Clone)]
pub(crate) struct Commands(pub(crate) Arc<Wire>);

impl CommandSink for Commands {
    fn send(&self, command: Command) -> Result<(), ServeError> {
        self.0.send(command)
    }
}

/// The engine's end.
pub(crate) struct Replies(pub(crate) Arc<Wire>);

impl Outbox for Replies {
    fn deliver(&mut self, reply: StepReply) -> bool {
        self.0.reply(reply)
    }
}

fn describe(wire: WireId, command: &Command) -> LogEntry {
    let (name, request) = match command {
        Command::PrepRecv(_) => ("prep_recv", None),
        Command::RemoteSend(_) => ("remote_send", None),
        Command::Generate { reservation: None, .. } => ("generate", None),
        Command::Generate { .. } => ("generate from a reservation", None),
        Command::Release(_) => ("release", None),
        Command::Abort(request) => ("abort", Some(*request)),
        Command::AbortChoice { request, .. } => ("abort a choice", Some(*request)),
        Command::FollowCache => ("follow the cache", None),
    };
    let (request, attempt) = command.opens().map_or((request, None), |(id, attempt)| (Some(id), Some(attempt)));
    LogEntry::Command { wire, command: name, request, attempt }
}

pub(crate) fn describe_reply(wire: WireId, reply: &StepReply) -> LogEntry {
    let name = |event: &EngineEvent| match event {
        EngineEvent::Prompt(_) => "prompt",
        EngineEvent::Token(_) => "token",
        EngineEvent::Reserved(_) => "reserved",
        EngineEvent::Sent(_) => "sent",
        EngineEvent::Failed(_) => "failed",
    };
    let events = reply.events.iter().map(|event| (name(event), event.request(), event.attempt()));
    LogEntry::Reply { wire, events: events.collect() }
}
