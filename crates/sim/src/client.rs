//! A client of a router: asks, listens, compares every event with what the model says, and sometimes hangs up.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use baton_core::GenerateRequest;
use baton_protocol::TokenStream;
use baton_router::Dispatcher;

use crate::book::{Book, Ended};
use crate::clock::Clock;
use crate::stream::{Heard, Stream};

pub(crate) struct Client {
    pub(crate) id: u64,
    pub(crate) clock: Arc<Clock>,
    pub(crate) book: Arc<Book>,
    pub(crate) router_life: u64,
    pub(crate) patience: Option<Duration>,
}

impl Client {
    pub(crate) async fn run(self, dispatcher: Arc<Dispatcher>, request: GenerateRequest, stream: Stream) {
        let ended = tokio::select! {
            biased;
            ended = self.ask(dispatcher, request, stream) => ended,
            () = lose_patience(&self.clock, self.patience) => Ended::Left,
        };
        self.book.close(self.id, ended);
    }

    async fn ask(&self, dispatcher: Arc<Dispatcher>, request: GenerateRequest, mut stream: Stream) -> Ended {
        let events = dispatcher.generate(request).await;
        // The router may die while its client listens.
        drop(dispatcher);
        match events {
            Ok(mut events) => {
                let ended = listen(&mut events, &mut stream).await;
                match ended {
                    Some(ended) => ended,
                    None if self.book.is_dead(self.router_life) => Ended::CutOff,
                    None => Ended::Wrong("the stream ended without an end".to_owned()),
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
pub(crate) async fn listen(events: &mut TokenStream, stream: &mut Stream) -> Option<Ended> {
    let mut failed = None;
    while let Some(event) = events.next().await {
        if failed.is_some() {
            return Some(Ended::Wrong("an event after a failure".to_owned()));
        }
        match stream.hear(event) {
            Ok(Heard::More) => {}
            // As the gateway does it: the last one takes the stream along.
            Ok(Heard::Enough(_)) if stream.is_complete() => return Some(Ended::Served),
            Ok(Heard::Enough(choice)) => events.end_choice(choice),
            Ok(Heard::Failed(error)) => failed = Some(Ended::Failed { error, hopeless: stream.is_hopeless() }),
            Err(message) => return Some(Ended::Wrong(message)),
        }
    }
    match failed {
        None if !stream.is_complete() => None,
        None if stream.is_hopeless() => Some(Ended::Wrong("served what cannot be served".to_owned())),
        None => Some(Ended::Served),
        failed => failed,
    }
}
