//! Which streams are open on a session, and where each event of a step reply goes. A call with a single answer is a stream
//! that ends with it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use baton_core::{Attempt, Choice, EngineEvent, EngineReport, RequestId, ServeError};
use tokio::sync::{mpsc, watch};

use crate::error::SessionError;
use crate::{CacheFollower, Heartbeat, Heartbeats, StepReply};

/// The receiving end of step replies: one stream per request, each ending when its request does.
#[derive(Default)]
pub struct OpenRequests {
    state: Mutex<State>,
    ended: watch::Sender<bool>,
}

#[derive(Default)]
struct State {
    report: EngineReport,
    heartbeats: Heartbeats,
    streams: BTreeMap<RequestId, Open>,
    cache_follower: Option<Arc<dyn CacheFollower>>,
}

pub(crate) type Events = mpsc::UnboundedReceiver<EngineEvent>;

struct Open {
    attempt: Attempt,
    /// Choices that have not ended; the single answer of a call counts as one.
    unfinished: usize,
    /// Choices that have ended, by themselves or because the client has enough of them.
    ended: Vec<Choice>,
    events: mpsc::UnboundedSender<EngineEvent>,
}

impl OpenRequests {
    /// The stream of a request's events. Ends when the request does, and when the session does.
    pub(crate) fn register(
        &self,
        request: RequestId,
        attempt: Attempt,
        unfinished: usize,
    ) -> Result<Events, ServeError> {
        let mut state = self.lock();
        if !self.is_alive() {
            return Err(SessionError::Closed.into());
        }
        if state.streams.contains_key(&request) {
            return Err(ServeError::engine(format!("request {request} is already open on this session")));
        }
        let (events, stream) = mpsc::unbounded_channel();
        state.streams.insert(request, Open { attempt, unfinished, ended: Vec::new(), events });
        Ok(stream)
    }

    /// `true` when the request was still open.
    pub(crate) fn forget(&self, request: RequestId, attempt: Attempt) -> bool {
        let mut state = self.lock();
        let open = state.streams.get(&request).is_some_and(|open| open.attempt == attempt);
        if open {
            state.streams.remove(&request);
        }
        open
    }

    /// Events of this choice are dropped from now on. `true` when it had not ended.
    pub(crate) fn end_choice(&self, request: RequestId, attempt: Attempt, choice: Choice) -> bool {
        let mut state = self.lock();
        let Some(open) = state.streams.get_mut(&request).filter(|open| open.attempt == attempt) else { return false };
        let ends = open.end_choice(choice);
        if open.unfinished == 0 {
            state.streams.remove(&request);
        }
        ends
    }

    /// Cache events of replies go to `follower`.
    pub(crate) fn follow_cache(&self, follower: Arc<dyn CacheFollower>) {
        self.lock().cache_follower = Some(follower);
    }

    pub fn deliver(&self, reply: StepReply) {
        if let Some(update) = reply.cache {
            let follower = self.lock().cache_follower.clone();
            if let Some(follower) = follower {
                follower.cache_changed(update);
            }
        }
        let mut state = self.lock();
        if reply.report.sequence > state.report.sequence {
            state.report = reply.report;
        }
        for event in reply.events {
            state.deliver(event);
        }
    }

    pub fn receive(&self, heartbeat: Heartbeat) {
        self.lock().heartbeats.receive(heartbeat);
    }

    /// No more events: all streams end where they are.
    pub fn end(&self) {
        let mut state = self.lock();
        self.ended.send_replace(true);
        state.streams.clear();
    }

    pub fn is_alive(&self) -> bool {
        !*self.ended.borrow()
    }

    pub async fn ended(&self) {
        // The sender is ours: it cannot go first.
        let _ = self.ended.subscribe().wait_for(|ended| *ended).await;
    }

    /// How many streams have not ended.
    pub fn count(&self) -> usize {
        self.lock().streams.len()
    }

    pub fn report(&self) -> EngineReport {
        self.lock().report.clone()
    }

    pub fn heartbeats(&self) -> Heartbeats {
        self.lock().heartbeats
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Open {
    fn end_choice(&mut self, choice: Choice) -> bool {
        let ends = !self.ended.contains(&choice);
        if ends {
            self.ended.push(choice);
            self.unfinished = self.unfinished.saturating_sub(1);
        }
        ends
    }
}

impl State {
    /// Events of requests that were aborted, or of an attempt before the present one, may still be on their way: dropped.
    fn deliver(&mut self, event: EngineEvent) {
        let request = event.request();
        let Some(open) = self.streams.get_mut(&request).filter(|open| open.attempt == event.attempt()) else {
            return;
        };
        match &event {
            EngineEvent::Prompt(_) => {}
            EngineEvent::Token(token) if open.ended.contains(&token.choice) => return,
            EngineEvent::Token(token) if token.finish.is_none() => {}
            EngineEvent::Token(token) => drop(open.end_choice(token.choice)),
            EngineEvent::Reserved(_) | EngineEvent::Sent(_) | EngineEvent::Failed(_) => open.unfinished = 0,
        }
        // The reader may have gone in this moment; its abort follows.
        let _ = open.events.send(event);
        if open.unfinished == 0 {
            self.streams.remove(&request);
        }
    }
}
