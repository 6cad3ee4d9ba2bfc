//! Generates tokens when they are due, as events or in one JSON document. The connection polls it directly, without a task or
//! channel in between, so that a mock uses little CPU beside the router under test.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use hyper::body::Bytes;
use serde_json::Value;
use tokio::time::{Instant, Sleep};

use super::clock::TokenClock;
use super::counters::count;
use super::engine::DialectEngine;
use super::engine::RunningGuard;
use super::error::ErrorResponse;
use super::events::{EventWriter, TokenUsage};
use super::request::DialectRequest;
use crate::history::History;
use crate::vocabulary::Generated;

const CRASH_EXIT_CODE: i32 = 1;

/// The response to one request, token by token.
pub(super) struct ResponseStream {
    engine: Arc<DialectEngine>,
    events: EventWriter,
    answers: Vec<AnswerProgress>,
    clock: TokenClock,
    tokens: u32,
    /// The request fails instead of generating this token.
    fails_at: Option<u32>,
    next: NextEvent,
    sleep: Option<Pin<Box<Sleep>>>,
    _running: RunningGuard,
}

struct AnswerProgress {
    history: History,
    draw: u64,
    generated: Vec<Generated>,
}

/// The next event. All answers get their token of one index before any gets the next.
#[derive(Clone, Copy)]
enum NextEvent {
    Opening { answer: usize },
    Token { index: u32, answer: usize },
    Usage,
    Done,
    Nothing,
}

impl ResponseStream {
    /// Returns the injected error if the request fails before its first token.
    pub(super) fn start(
        engine: &Arc<DialectEngine>,
        request: &DialectRequest,
        first_due: Instant,
        running: RunningGuard,
    ) -> Result<Self, ErrorResponse> {
        let fails_at = engine.faults.doom();
        if fails_at == Some(0) {
            return Err(injected_error(engine));
        }
        let answers = request.answers().map(|(history, draw)| AnswerProgress { history, draw, generated: Vec::new() });
        Ok(Self {
            events: EventWriter::new(engine, request),
            answers: answers.collect(),
            clock: TokenClock::new(engine, first_due),
            tokens: request.max_tokens,
            fails_at,
            next: NextEvent::Opening { answer: 0 },
            sleep: None,
            engine: Arc::clone(engine),
            _running: running,
        })
    }

    /// Waits until the next token is due.
    pub(super) async fn due(&self) {
        // An expired timer would still yield to the runtime once.
        if self.clock.due() > Instant::now() {
            tokio::time::sleep_until(self.clock.due()).await;
        }
    }

    /// Generates all tokens, each when it is due.
    pub(super) async fn generate_all(&mut self) -> Result<(), ErrorResponse> {
        for index in 0..self.tokens {
            self.due().await;
            if self.fails_at == Some(index) {
                return Err(injected_error(&self.engine));
            }
            (0..self.answers.len()).for_each(|answer| self.generate(answer));
            self.clock.advance(&self.engine);
        }
        Ok(())
    }

    /// The JSON document with all tokens, and one more field if there is one.
    pub(super) fn document(&self, extra: Option<(&str, Value)>) -> Bytes {
        let answers: Vec<&[Generated]> = self.answers.iter().map(|answer| &answer.generated[..]).collect();
        self.events.document(&self.engine.vocabulary, &answers, extra)
    }

    /// Returns the next event when it is due.
    pub(super) fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<Bytes>> {
        loop {
            let event = match self.next {
                NextEvent::Opening { answer } if answer == self.answers.len() => {
                    self.next =
                        if self.tokens == 0 { NextEvent::Usage } else { NextEvent::Token { index: 0, answer: 0 } };
                    None
                }
                NextEvent::Opening { answer } => {
                    ready!(self.poll_due(context));
                    self.next = NextEvent::Opening { answer: answer + 1 };
                    self.events.opening(answer)
                }
                NextEvent::Token { index, answer } => {
                    ready!(self.poll_due(context));
                    Some(self.token(index, answer))
                }
                NextEvent::Usage => {
                    self.next = NextEvent::Done;
                    self.events.usage(TokenUsage::of(self.answers.iter().map(|answer| answer.generated.len())))
                }
                NextEvent::Done => {
                    self.next = NextEvent::Nothing;
                    Some(Bytes::from_static(b"data: [DONE]\n\n"))
                }
                NextEvent::Nothing => return Poll::Ready(None),
            };
            if event.is_some() {
                return Poll::Ready(event);
            }
        }
    }

    fn poll_due(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let due = self.clock.due();
        if due <= Instant::now() {
            return Poll::Ready(());
        }
        let sleep = self.sleep.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(due)));
        if sleep.deadline() != due {
            sleep.as_mut().reset(due);
        }
        sleep.as_mut().poll(context)
    }

    fn token(&mut self, index: u32, answer: usize) -> Bytes {
        if self.fails_at == Some(index) {
            self.next = NextEvent::Done;
            return self.events.error(&injected_error(&self.engine).body);
        }
        self.generate(answer);
        let last = index + 1 == self.tokens;
        let event = self.events.token(&self.engine.vocabulary, answer, &self.answers[answer].generated, last);
        self.next = if answer + 1 < self.answers.len() {
            NextEvent::Token { index, answer: answer + 1 }
        } else if last {
            NextEvent::Usage
        } else {
            self.clock.advance(&self.engine);
            NextEvent::Token { index: index + 1, answer: 0 }
        };
        event
    }

    fn generate(&mut self, answer: usize) {
        if self.engine.faults.crashes() {
            // Like a crash: connections are reset without a response.
            std::process::exit(CRASH_EXIT_CODE);
        }
        let AnswerProgress { history, draw, generated } = &mut self.answers[answer];
        let token = self.engine.vocabulary.next(*history, *draw);
        *history = history.then(token.token);
        generated.push(token);
        count(&self.engine.counters.tokens);
    }
}

pub(super) fn injected_error(engine: &DialectEngine) -> ErrorResponse {
    ErrorResponse::failed(engine, "the mock engine fails this request, as configured".to_owned())
}
