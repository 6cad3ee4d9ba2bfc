//! A client of a router: sends a request, compares every event with the reference model, and sometimes hangs up.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use baton_core::GenerateRequest;
use baton_protocol::TokenStream;
use baton_router::Dispatcher;

use crate::client_requests::{ClientOutcome, ClientRequests};
use crate::clock::Clock;
use crate::stall::StallClock;
use crate::stream_checker::{Checked, StreamChecker};

pub(crate) struct Client {
    pub(crate) id: u64,
    pub(crate) clock: Arc<Clock>,
    pub(crate) requests: Arc<ClientRequests>,
    pub(crate) router_incarnation: u64,
    pub(crate) patience: Option<Duration>,
    pub(crate) longest_stall: Option<Duration>,
}

impl Client {
    pub(crate) async fn run(self, dispatcher: Arc<Dispatcher>, request: GenerateRequest, stream: StreamChecker) {
        let ended = tokio::select! {
            biased;
            ended = self.send_request(dispatcher, request, stream) => ended,
            () = after_patience(&self.clock, self.patience) => ClientOutcome::Left,
        };
        self.requests.close(self.id, ended);
    }

    async fn send_request(
        &self,
        dispatcher: Arc<Dispatcher>,
        request: GenerateRequest,
        mut stream: StreamChecker,
    ) -> ClientOutcome {
        if let Some(longest) = self.longest_stall {
            stream.expect_no_stall(StallClock::new(&self.clock, &self.requests, longest));
        }
        let events = dispatcher.generate(request).await;
        // The client must not keep a router alive that dies meanwhile.
        drop(dispatcher);
        match events {
            Ok(mut events) => {
                let ended = check_events(&mut events, &mut stream).await;
                match ended {
                    Some(ended) => ended,
                    None if self.requests.is_dead(self.router_incarnation) => ClientOutcome::CutOff,
                    None => ClientOutcome::Wrong("the stream ended before the request".to_owned()),
                }
            }
            Err(error) => ClientOutcome::Failed { hopeless: stream.is_hopeless(), error },
        }
    }
}

async fn after_patience(clock: &Arc<Clock>, patience: Option<Duration>) {
    match patience {
        Some(patience) => clock.sleep(patience).await,
        None => pending().await,
    }
}

/// `None` when the stream ends before the request has.
pub(crate) async fn check_events(events: &mut TokenStream, stream: &mut StreamChecker) -> Option<ClientOutcome> {
    let mut failed = None;
    while let Some(event) = events.next().await {
        if failed.is_some() {
            return Some(ClientOutcome::Wrong("an event after a failure".to_owned()));
        }
        match stream.check(event) {
            Ok(Checked::More) => {}
            // As in the gateway: when all choices are complete, the stream is dropped.
            Ok(Checked::Enough(_)) if stream.is_complete() => return Some(ClientOutcome::Served),
            Ok(Checked::Enough(choice)) => events.end_choice(choice),
            Ok(Checked::Failed(error)) => {
                failed = Some(ClientOutcome::Failed { error, hopeless: stream.is_hopeless() })
            }
            Err(message) => return Some(ClientOutcome::Wrong(message)),
        }
    }
    match failed {
        None if !stream.is_complete() => None,
        None if stream.is_hopeless() => Some(ClientOutcome::Wrong("served a request that must fail".to_owned())),
        None => Some(ClientOutcome::Served),
        failed => failed,
    }
}
