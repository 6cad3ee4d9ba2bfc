//! The calling half of [`Engine`](crate::Engine), for every engine that takes commands and answers with step replies.

use std::sync::Arc;

use baton_core::{Attempt, EngineEvent, EngineReport, GenerateRequest, RequestId, ServeError, TokenRange};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use crate::error::SessionError;
use crate::open_requests::Events;
use crate::{CacheFollower, Command, Destination, OpenRequests, PrepRecv, RemoteSend, Reservation, Sent, TokenStream};

/// Where commands go. Clones are the same session.
pub trait CommandSink: Clone + Send + Sync + 'static {
    /// Does not wait. An error means that the command will not be looked at.
    fn send(&self, command: Command) -> Result<(), ServeError>;
}

/// One session's calls: commands leave by the sink, and step replies that are delivered to `open` answer them.
pub struct Caller<S> {
    sink: S,
    open: Arc<OpenRequests>,
}

impl<S: CommandSink> Caller<S> {
    pub fn new(sink: S, open: Arc<OpenRequests>) -> Self {
        Self { sink, open }
    }

    /// The newest that was delivered.
    pub fn report(&self) -> EngineReport {
        self.open.report()
    }

    /// A session's reservation lives as long as its guard; a `lease_ms` bounds it for callers that may never come back.
    pub fn prep_recv(
        &self,
        request: &GenerateRequest,
        end: u32,
        lease_ms: Option<u32>,
    ) -> BoxFuture<'static, Result<Reservation, ServeError>> {
        let &GenerateRequest { id: request, attempt, ref prompt, adapter, .. } = request;
        let prompt = Arc::clone(prompt);
        let command = Command::PrepRecv(Box::new(PrepRecv { request, attempt, prompt, adapter, end, lease_ms }));
        let (call, sink) = (self.call(request, attempt, command), self.sink.clone());
        let reserved = async move {
            match call?.answer().await? {
                EngineEvent::Reserved(event) => {
                    let to = Destination { matched: event.matched, end, target: event.target.into() };
                    // A sink that refuses has no engine behind it any more.
                    Ok(Reservation::new(event.reservation, to, move |id| drop(sink.send(Command::Release(id)))))
                }
                other => Err(out_of_turn("prep_recv", &other)),
            }
        };
        reserved.boxed()
    }

    pub fn remote_send(
        &self,
        request: &GenerateRequest,
        to: &Destination,
        range: TokenRange,
    ) -> BoxFuture<'static, Result<Sent, ServeError>> {
        let &GenerateRequest { id: request, attempt, ref prompt, adapter, .. } = request;
        let prompt = Arc::clone(prompt);
        let target = to.target.to_vec();
        let command = Command::RemoteSend(Box::new(RemoteSend { request, attempt, prompt, adapter, range, target }));
        let call = self.call(request, attempt, command);
        let sent = async {
            match call?.answer().await? {
                EngineEvent::Sent(event) => Ok(Sent { verified_tokens: event.verified_tokens }),
                other => Err(out_of_turn("remote_send", &other)),
            }
        };
        sent.boxed()
    }

    pub fn start_generate(
        &self,
        request: GenerateRequest,
        handoff: Option<(Reservation, Option<Sent>)>,
    ) -> Result<TokenStream, ServeError> {
        let (id, attempt, choices) = (request.id, request.attempt, request.unfinished_choices().count());
        let (reservation, sent) = handoff.unzip();
        let from = reservation.as_ref().map(Reservation::id);
        let all_is_there = reservation.as_ref().is_some_and(|to| to.missing().is_none()) || sent.flatten().is_some();
        let generate = Command::Generate { request: Box::new(request), reservation: from };
        let events = self.send(id, attempt, choices, generate)?;
        let (open, sink) = (Arc::clone(&self.open), self.sink.clone());
        let abort = move |id| {
            if open.forget(id, attempt) {
                // Refused only when the engine has ended, or is flooded with aborts of requests it does not have.
                let _ = sink.send(Command::Abort(id));
            }
        };
        let (open, sink) = (Arc::clone(&self.open), self.sink.clone());
        let end_choice = move |choice| {
            if open.end_choice(id, attempt, choice) {
                let _ = sink.send(Command::AbortChoice { request: id, choice });
            }
        };
        let mut stream = TokenStream::new(id, events, abort).with_end_choice(end_choice).with(reservation);
        if all_is_there {
            stream.expect_no_more();
        }
        Ok(stream)
    }

    pub fn follow_cache(&self, follower: Arc<dyn CacheFollower>) {
        self.open.follow_cache(follower);
        // Refused only when the engine has ended.
        let _ = self.sink.send(Command::FollowCache);
    }

    fn call(&self, request: RequestId, attempt: Attempt, command: Command) -> Result<Call<S>, ServeError> {
        let events = self.send(request, attempt, 1, command)?;
        Ok(Call { request, attempt, events, sink: self.sink.clone(), open: Arc::clone(&self.open), answered: false })
    }

    fn send(&self, request: RequestId, attempt: Attempt, ends: usize, command: Command) -> Result<Events, ServeError> {
        let events = self.open.register(request, attempt, ends)?;
        if let Err(error) = self.sink.send(command) {
            self.open.forget(request, attempt);
            return Err(error);
        }
        Ok(events)
    }
}

/// A question with one answer. Dropping it before the answer was read aborts it, even if the answer has arrived: it may be
/// a reservation, which the engine gives back then.
struct Call<S: CommandSink> {
    request: RequestId,
    attempt: Attempt,
    events: Events,
    sink: S,
    open: Arc<OpenRequests>,
    answered: bool,
}

impl<S: CommandSink> Call<S> {
    async fn answer(mut self) -> Result<EngineEvent, ServeError> {
        let event = self.events.recv().await;
        self.answered = true;
        match event {
            Some(EngineEvent::Failed(failed)) => Err(failed.error),
            Some(event) => Ok(event),
            None => Err(SessionError::Closed.into()),
        }
    }
}

impl<S: CommandSink> Drop for Call<S> {
    fn drop(&mut self) {
        if !self.answered {
            self.open.forget(self.request, self.attempt);
            let _ = self.sink.send(Command::Abort(self.request));
        }
    }
}

fn out_of_turn(call: &str, event: &EngineEvent) -> ServeError {
    ServeError::engine(format!("the engine answered {call} with {event:?}"))
}
