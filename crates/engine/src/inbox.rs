//! The queue in front of the step loop. Many write, one reads; the reader sleeps while there is nothing to do.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use baton_protocol::{Command, SessionId};

use crate::outbox::Outbox;

/// Generate commands that may wait for the next step boundary, where the scheduler's own bound takes over.
const MAX_GENERATES: usize = 1024;
/// Aborts and ends of sessions are never turned away by requests in front of them. A session that sends more aborts than
/// this within one step has far more of them than requests.
const MAX_MESSAGES: usize = 64 * MAX_GENERATES;

pub(crate) enum Message {
    Open(SessionId, Box<dyn Outbox>),
    Command(SessionId, Command),
    Close(SessionId),
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
}

#[derive(Default)]
struct Queue {
    messages: VecDeque<Message>,
    generates: usize,
    ended: bool,
}

impl Inbox {
    pub(crate) fn push(&self, message: Message) -> Result<(), Refused> {
        let mut queue = self.lock();
        if queue.ended {
            return Err(Refused::Ended);
        }
        let generate = matches!(message, Message::Command(_, Command::Generate(_)));
        let abort = matches!(message, Message::Command(_, Command::Abort(_)));
        if generate && queue.generates >= MAX_GENERATES || abort && queue.messages.len() >= MAX_MESSAGES {
            return Err(Refused::Full);
        }
        queue.generates += usize::from(generate);
        queue.messages.push_back(message);
        self.arrived.notify_one();
        Ok(())
    }

    /// Moves all messages to the end of `messages`; with `wait` at least one.
    pub(crate) fn take(&self, messages: &mut Vec<Message>, wait: bool) {
        let mut queue = self.lock();
        while wait && queue.messages.is_empty() {
            queue = self.arrived.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
        queue.generates = 0;
        messages.extend(queue.messages.drain(..));
    }

    /// Nobody will read any more.
    pub(crate) fn end(&self) {
        let mut queue = self.lock();
        queue.ended = true;
        queue.messages.clear();
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
