//! Tokens as they become due: as events, or all in one answer. No task and no channel stands between the clock and the
//! connection, so that a mock costs little beside the router it serves.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use hyper::body::Bytes;
use serde_json::Value;
use tokio::time::{Instant, Sleep};

use super::DialectEngine;
use super::clock::TokenClock;
use super::counters::{Running, count};
use super::http::Refused;
use super::job::Job;
use super::shape::{Shape, Usage};
use crate::history::History;
use crate::vocabulary::Said;

const CRASH_EXIT_CODE: i32 = 1;

/// Everything a request still has to say.
pub(super) struct Pour {
    engine: Arc<DialectEngine>,
    shape: Shape,
    answers: Vec<Answer>,
    clock: TokenClock,
    tokens: u32,
    /// Fails instead of saying this token.
    doomed_at: Option<u32>,
    next: Next,
    sleep: Option<Pin<Box<Sleep>>>,
    _running: Running,
}

struct Answer {
    history: History,
    draw: u64,
    said: Vec<Said>,
}

/// The next event. Every answer says a token, then every answer the next one.
#[derive(Clone, Copy)]
enum Next {
    Opening { answer: usize },
    Token { index: u32, answer: usize },
    Usage,
    Done,
    Nothing,
}

impl Pour {
    /// An error when the request is one of those that fail before their first token.
    pub(super) fn start(
        engine: &Arc<DialectEngine>,
        job: &Job,
        first_due: Instant,
        running: Running,
    ) -> Result<Self, Refused> {
        let doomed_at = engine.faults.doom();
        if doomed_at == Some(0) {
            return Err(told_to_fail(engine));
        }
        let answers = job.answers().map(|(history, draw)| Answer { history, draw, said: Vec::new() });
        Ok(Self {
            shape: Shape::new(engine, job),
            answers: answers.collect(),
            clock: TokenClock::new(engine, first_due),
            tokens: job.max_tokens,
            doomed_at,
            next: Next::Opening { answer: 0 },
            sleep: None,
            engine: Arc::clone(engine),
            _running: running,
        })
    }

    /// Waits for the next token's time.
    pub(super) async fn due(&self) {
        // A timer that is already over would still cost a turn of the runtime.
        if self.clock.due() > Instant::now() {
            tokio::time::sleep_until(self.clock.due()).await;
        }
    }

    /// Waits for all of it.
    pub(super) async fn say_all(&mut self) -> Result<(), Refused> {
        for index in 0..self.tokens {
            self.due().await;
            if self.doomed_at == Some(index) {
                return Err(told_to_fail(&self.engine));
            }
            (0..self.answers.len()).for_each(|answer| self.say(answer));
            self.clock.advance(&self.engine);
        }
        Ok(())
    }

    /// What was said, with one more field for the answer.
    pub(super) fn whole(&self, extra: Option<(&str, Value)>) -> Bytes {
        let said: Vec<&[Said]> = self.answers.iter().map(|answer| &answer.said[..]).collect();
        self.shape.whole(&self.engine.vocabulary, &said, extra)
    }

    /// The next event, when its time has come.
    pub(super) fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<Bytes>> {
        loop {
            let event = match self.next {
                Next::Opening { answer } if answer == self.answers.len() => {
                    self.next = if self.tokens == 0 { Next::Usage } else { Next::Token { index: 0, answer: 0 } };
                    None
                }
                Next::Opening { answer } => {
                    ready!(self.poll_due(context));
                    self.next = Next::Opening { answer: answer + 1 };
                    self.shape.opening(answer)
                }
                Next::Token { index, answer } => {
                    ready!(self.poll_due(context));
                    Some(self.token(index, answer))
                }
                Next::Usage => {
                    self.next = Next::Done;
                    self.shape.usage(Usage::of(self.answers.iter().map(|answer| answer.said.len())))
                }
                Next::Done => {
                    self.next = Next::Nothing;
                    Some(Bytes::from_static(b"data: [DONE]\n\n"))
                }
                Next::Nothing => return Poll::Ready(None),
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
        if self.doomed_at == Some(index) {
            self.next = Next::Done;
            return self.shape.error(&told_to_fail(&self.engine).body);
        }
        self.say(answer);
        let last = index + 1 == self.tokens;
        let event = self.shape.token(&self.engine.vocabulary, answer, &self.answers[answer].said, last);
        self.next = if answer + 1 < self.answers.len() {
            Next::Token { index, answer: answer + 1 }
        } else if last {
            Next::Usage
        } else {
            self.clock.advance(&self.engine);
            Next::Token { index: index + 1, answer: 0 }
        };
        event
    }

    fn say(&mut self, answer: usize) {
        if self.engine.faults.crashes() {
            // As an engine that dies: no goodbye on any connection.
            std::process::exit(CRASH_EXIT_CODE);
        }
        let Answer { history, draw, said } = &mut self.answers[answer];
        let word = self.engine.vocabulary.next(*history, *draw, &[]);
        *history = history.then(word.token);
        said.push(word);
        count(&self.engine.counters.tokens);
    }
}

pub(super) fn told_to_fail(engine: &DialectEngine) -> Refused {
    Refused::failed(engine, "the mock engine fails this request, as it was told to".to_owned())
}
