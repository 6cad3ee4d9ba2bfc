//! A client of a router: sends a request, compares every event with the reference model, and sometimes hangs up.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use baton_core::GenerateRequest;
use baton_protocol::TokenStream;
use baton_router::Dispatcher;

use crate::book::{Book, Ended};
use crate::clock::Clock;
use crate::stall::StallClock;
use crate::stream::{Checked, StreamChecker};

pub(crate) struct Client {
    pub(crate) id: u64,
    pub(crate) clock: Arc<Clock>,
    pub(crate) book: Arc<Book>,
    pub(crate) router_life: u64,
    pub(crate) patience: Option<Duration>,
    pub(crate) longest_stall: Option<Duration>,
}

impl Client {
    pub(crate) async fn run(self, dispatcher: Arc<Dispatcher>, request: GenerateRequest, stream: StreamChecker) {
        let ended = tokio::select! {
            biased;
            ended = self.ask(dispatcher, request, stream) => ended,
            () = lose_patience(&self.clock, self.patience) => Ended::Left,
        };
        self.book.close(self.id, ended);
    }

    async fn ask(&self, dispatcher: Arc<Dispatcher>, request: GenerateRequest, mut stream: StreamChecker) -> Ended {
        if let Some(longest) = self.longest_stall {
            stream.expect_no_stall(StallClock::new(&self.clock, &self.book, longest));
        }
        let events = dispatcher.generate(request).await;
        // The client must not keep a router alive that dies meanwhile.
        drop(dispatcher);
        match events {
            Ok(mut events) => {
                let ended = check_events(&mut events, &mut stream).await;
                match ended {
                    Some(ended) => ended,
                    None if self.book.is_dead(self.router_life) => Ended::CutOff,
                    None => Ended::Wrong("the stream ended before the request".to_owned()),
                }
            }
            Err(error) => Ended::Failed { hopeless: stream.is_hopeless(), error },
        }
    }
}

async fn lose_patience(clock: &Arc<Clock>, patience: Option<Duration>) {
    match patience {
        Some(patience) => clock.sleep(patience).await,
        None => pending().await,
    }
}

/// `None` when the stream ends before the request has.
pub(crate) async fn check_events(events: &mut TokenStream, stream: &mut StreamChecker) -> Option<Ended> {
    let mut failed = None;
    while let Some(event) = events.next().await {
        if failed.is_some() {
            return Some(Ended::Wrong("an event after a failure".to_owned()));
        }
        match stream.check(event) {
            Ok(Checked::More) => {}
            // As in the gateway: when all choices are complete, the stream is dropped.
            Ok(Checked::Enough(_)) if stream.is_complete() => return Some(Ended::Served),
            Ok(Checked::Enough(choice)) => events.end_choice(choice),
            Ok(Checked::Failed(error)) => failed = Some(Ended::Failed { error, hopeless: stream.is_hopeless() }),
            Err(message) => return Some(Ended::Wrong(message)),
        }
    }
    match failed {
        None if !stream.is_complete() => None,
        None if stream.is_hopeless() => Some(Ended::Wrong("served a request that must fail".to_owned())),
        None => Some(Ended::Served),
        failed => failed,
    }
}
