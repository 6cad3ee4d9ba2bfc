//! What travels on a link.

use baton_core::{PageId, PromptTimes, ReservationId};

use super::fence::Mark;
use crate::model::Block;
use crate::random::mix;

/// Names a reservation to those who may send to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key {
    pub(crate) reservation: ReservationId,
    pub(super) secret: u64,
}

#[derive(Clone)]
pub(crate) enum Message {
    Offer(Offer),
    Finish(Key, PromptTimes),
}

#[derive(Clone)]
pub(crate) struct Offer {
    pub(super) key: Key,
    pub(super) mark: Mark,
    pub(super) layer: u32,
    pub(super) first_index: usize,
    pub(super) pages: Vec<PageId>,
    pub(super) sums: Vec<u64>,
    /// Whether the fence was really up when the sums were taken.
    pub(super) in_time: bool,
    /// Sent along over tcp; over shared memory the receiver reads them.
    pub(super) bytes: Option<Vec<Block>>,
}

pub(crate) enum LinkEvent {
    Connect,
    /// The sending thread takes its next job.
    Work,
    Write,
    Arrived,
    /// A message out of order.
    Stray(Box<Message>),
    /// The receiving thread looks at sums and fence of what it has copied.
    Check,
    /// The receiver has looked at an offer; `damaged` if a block of it did not match its checksum.
    Taken {
        key: Key,
        damaged: bool,
    },
    /// The receiver's final report: verified tokens, unless the reservation is gone.
    Outcome(Key, Option<usize>),
}

pub(super) fn sum(block: &Block) -> u64 {
    block.iter().fold(1, |sum, &kv| mix(sum, kv))
}
