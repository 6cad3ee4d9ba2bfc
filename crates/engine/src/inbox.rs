//! The queue in front of the step loop. Many write, one reads; the reader sleeps while there is nothing to do.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use baton_core::{PromptTimes, ReservationId};
use baton_kv::Discrepancy;
use baton_protocol::{Command, SessionId};
use tokio::sync::oneshot;

use crate::handoff::{ExportId, Exported};
use crate::outbox::Outbox;

/// Commands that open something and may wait for the next step boundary, where the scheduler's own bound takes over.
const MAX_OPENING: usize = 1024;
/// Releases, aborts and ends of sessions are never turned away by requests in front of them. A session that sends more of
/// them than this within one step has far fewer requests.
const MAX_MESSAGES: usize = 64 * MAX_OPENING;

pub(crate) enum Message {
    Open(SessionId, Box<dyn Outbox>),
    /// Came in at that time; a long step may be under way.
    Command(SessionId, Command, Instant),
    Close(SessionId),
    /// A sender has offered everything.
    Landed(ReservationId, PromptTimes),
    /// A revoked reservation's pages are written no more. How many tokens are verified, from the sequence's start.
    Revoked(ReservationId, usize),
    /// How many tokens of a hand-off the receiver has verified, or why there is no answer.
    Exported(ExportId, Result<Exported, String>),
    /// Recount every page.
    Audit(oneshot::Sender<Result<(), Discrepancy>>),
    /// Refuse what is new, end when all is done.
    Drain,
    /// End now.
    Stop,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    Full,
    Ended,
}

#[derive(Default)]
pub(crate) struct Inbox {
    queue: Mutex<Queue>,
    arrived: Condvar,
    /// How often its reader has come back.
    turns: AtomicU64,
    /// Its reader has nothing to do.
    waited_at: AtomicBool,
}

#[derive(Default)]
struct Queue {
    messages: VecDeque<Message>,
    opening: usize,
    ended: bool,
}

impl Inbox {
    pub(crate) fn push(&self, message: Message) -> Result<(), Refused> {
        let mut queue = self.lock();
        if queue.ended {
            return Err(Refused::Ended);
        }
        let (opens, ends) = match &message {
            Message::Command(_, command, _) => (command.opens().is_some(), command.opens().is_none()),
            _ => (false, false),
        };
        if opens && queue.opening >= MAX_OPENING || ends && queue.messages.len() >= MAX_MESSAGES {
            return Err(Refused::Full);
        }
        queue.opening += usize::from(opens);
        queue.messages.push_back(message);
        self.arrived.notify_one();
        Ok(())
    }

    /// Moves all messages to the end of `messages`. Waits for one, but no longer than `patience`.
    pub(crate) fn take(&self, messages: &mut Vec<Message>, patience: Duration) {
        self.turns.fetch_add(1, Ordering::Relaxed);
        let mut queue = self.lock();
        if !patience.is_zero() {
            self.waited_at.store(true, Ordering::Relaxed);
            let waited = self.arrived.wait_timeout_while(queue, patience, |queue| queue.messages.is_empty());
            queue = waited.unwrap_or_else(PoisonError::into_inner).0;
            self.waited_at.store(false, Ordering::Relaxed);
        }
        queue.opening = 0;
        messages.extend(queue.messages.drain(..));
    }

    /// Whether its reader is awake, and so has to come back, and how often it has.
    pub(crate) fn reader(&self) -> (bool, u64) {
        (!self.waited_at.load(Ordering::Relaxed), self.turns.load(Ordering::Relaxed))
    }

    /// The reader has ended.
    pub(crate) fn end(&self) {
        let mut queue = self.lock();
        queue.ended = true;
        queue.messages.clear();
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::thread;

    use baton_core::{Attempt, GenerateRequest, Limits, RequestId, SamplingParams, TokenId};

    use super::*;

    const SESSION: SessionId = SessionId(0);

    fn generate() -> Message {
        let request = GenerateRequest {
            id: RequestId(0),
            attempt: Attempt(0),
            prompt: [TokenId(0)].into(),
            outputs: vec![Vec::new()],
            ended: vec![false],
            sampling: SamplingParams::greedy(),
            limits: Limits { max_tokens: 1, min_tokens: 0, stop_tokens: Vec::new() },
            logprobs: None,
            prompt_logprobs: None,
            adapter: None,
            pooling: None,
            affinity: None,
        };
        Message::Command(SESSION, Command::Generate { request: Box::new(request), reservation: None }, Instant::now())
    }

    fn abort() -> Message {
        Message::Command(SESSION, Command::Abort(RequestId(0)), Instant::now())
    }

    #[test]
    fn a_full_queue_refuses_requests_but_not_what_ends_them() {
        let inbox = Inbox::default();
        while inbox.push(generate()).is_ok() {}
        let mut messages = Vec::new();
        assert_eq!(inbox.push(generate()), Err(Refused::Full));
        assert_eq!(inbox.push(abort()), Ok(()));
        assert_eq!(inbox.push(Message::Close(SESSION)), Ok(()));
        inbox.take(&mut messages, Duration::ZERO);
        assert_eq!(messages.len(), MAX_OPENING + 2);
        assert_eq!(inbox.push(generate()), Ok(()), "emptied at a step boundary");

        while inbox.push(abort()).is_ok() {}
        inbox.take(&mut messages, Duration::ZERO);
        assert_eq!(messages.len(), MAX_OPENING + 2 + MAX_MESSAGES);
    }

    #[test]
    fn a_reader_sleeps_until_something_arrives() {
        let inbox = Arc::new(Inbox::default());
        let mut messages = Vec::new();
        inbox.take(&mut messages, Duration::from_millis(1));
        assert!(messages.is_empty(), "patience has an end");
        let reader = thread::spawn({
            let inbox = Arc::clone(&inbox);
            move || {
                let mut messages = Vec::new();
                inbox.take(&mut messages, Duration::MAX);
                messages.len()
            }
        });
        inbox.push(Message::Stop).unwrap();
        assert_eq!(reader.join().unwrap(), 1);
        inbox.end();
        assert_eq!(inbox.push(Message::Drain), Err(Refused::Ended));
    }
}
