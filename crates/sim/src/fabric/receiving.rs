//! The receiving end of a link: blocks are copied, then checked against checksum and fence, and only then count.

use baton_core::{PromptTimes, ReservationId};

use super::State;
use super::fence::Mark;
use super::link::Link;
use super::message::{Key, LinkEvent, Message, Offer, sum};
use crate::event::{Event, Input};
use crate::event_log::Checker;
use crate::ids::{LinkId, ProcessId};
use crate::log_entry::LogEntry;
use crate::mutation::Mutation;
use crate::scenario::Transport;

/// Copied, but not checked yet.
pub(super) struct Copying {
    pub(super) key: Key,
    mark: Mark,
    layer: u32,
    in_time: bool,
    /// Page index in the reservation, and whether the checksum matches.
    blocks: Vec<(usize, bool)>,
}

impl Link {
    fn copies(&self, to: ProcessId, reservation: ReservationId) -> bool {
        self.to == Some(to) && self.copy.as_ref().is_some_and(|copy| copy.key.reservation == reservation)
    }
}

impl State {
    /// One message after the other: the next is looked at when the copy before it has been checked.
    pub(super) fn take(&mut self, id: LinkId) {
        loop {
            let Some(link) = self.links.get_mut(&id) else { return };
            let Some(to) = link.to.filter(|to| link.copy.is_none() && self.nodes.get(to).is_some_and(|n| n.alive))
            else {
                return;
            };
            match link.arrived.pop_front() {
                Some(Message::Offer(offer)) => self.copy(id, to, offer),
                Some(Message::Finish(key, times)) => self.finished(id, to, key, times),
                None => return,
            }
        }
    }

    fn finished(&mut self, id: LinkId, to: ProcessId, key: Key, times: PromptTimes) {
        let expected = self.nodes.get(&to).and_then(|node| node.expected.get(&key));
        let verified = expected.map(|expected| expected.verified_tokens());
        if verified.is_some() {
            let reservation = key.reservation;
            self.log.record(LogEntry::Landed { process: to, reservation });
            self.send_input(to, Input::Landed(reservation, times));
        }
        self.answer(id, LinkEvent::Outcome(key, verified));
    }

    /// In the order of what it answers.
    fn answer(&mut self, id: LinkId, answer: LinkEvent) {
        let Some(link) = self.links.get_mut(&id) else { return };
        let due = (self.clock.now() + self.transfers.latency(&mut self.random)).max(link.last_answer);
        link.last_answer = due;
        self.clock.at(due, Event::Link(id, answer));
    }

    fn copy(&mut self, id: LinkId, to: ProcessId, offer: Offer) {
        // The reservation is locked from copy to check: two senders to one reservation take turns.
        self.finish_copies(to, offer.key.reservation);
        let Some(link) = self.links.get_mut(&id) else { return };
        let (Some(sender), Some(receiver)) = (self.nodes.get(&link.from), self.nodes.get(&to)) else { return };
        let Some(expected) = receiver.expected.get(&offer.key).filter(|expected| !expected.revoked) else {
            self.counts.unknown += 1;
            return self.log.record(LogEntry::Unknown(id));
        };
        let mut blocks = Vec::new();
        for (at, (&page, &offered_sum)) in offer.pages.iter().zip(&offer.sums).enumerate() {
            let Some(slot) = expected.slot(offer.first_index + at) else { continue };
            let mut block = match &offer.bytes {
                Some(bytes) => bytes[at],
                None => sender.memory.block(page, offer.layer),
            };
            if self.random.per_mille(self.transfers.flip_per_mille) {
                block[self.random.index(block.len())] ^= 1 << self.random.below(64);
            }
            // Copied first, checked after: a block that does not count has overwritten one that did.
            receiver.memory.put(expected.pages[slot], offer.layer, block);
            blocks.push((slot, sum(&block) == offered_sum));
        }
        let Offer { key, mark, layer, in_time, .. } = offer;
        link.copy = Some(Copying { key, mark, layer, in_time, blocks });
        let delay = self.transfers.copy_time(&mut self.random);
        self.clock.after(delay, Event::Link(id, LinkEvent::Check));
    }

    pub(super) fn check(&mut self, id: LinkId) {
        let Some(link) = self.links.get_mut(&id) else { return };
        let (Some(Copying { key, mark, layer, in_time, blocks }), Some(to)) = (link.copy.take(), link.to) else {
            return;
        };
        let in_time = match link.transport {
            Transport::Shm => self.nodes.get(&link.from).is_some_and(|sender| sender.fences.holds(mark)),
            // The sender summed the bytes under its own fence before it sent them.
            Transport::Tcp => in_time,
        };
        let counts = in_time || self.mutation == Some(Mutation::SkipFence);
        let Some(receiver) = self.nodes.get_mut(&to) else { return };
        let Some(expected) = receiver.expected.get_mut(&key) else { return };
        let revoked = expected.revoked;
        let (mut good, mut stale, mut damaged) = (0, 0, 0);
        for (slot, sum_is_right) in blocks {
            expected.landed[slot][layer as usize] = sum_is_right && counts;
            if !sum_is_right {
                damaged += 1;
            } else if !counts {
                stale += 1;
            } else {
                good += 1;
                expected.last_arrival = self.clock.now();
                let (begin, end) = expected.span(slot);
                if !in_time {
                    let message = format!("{to:?} counts KV from {:?}, whose fence was down", link.from);
                    self.log.report_violation(Checker::Fence, message);
                } else if !receiver.memory.holds(layer, &expected.prompt, begin, end, &expected.pages[slot..]) {
                    let message = format!("{to:?} counts KV [{begin}, {end}) that is not its prompt's");
                    self.log.report_violation(Checker::Kv, message);
                }
            }
        }
        self.counts.taken += good as u64;
        self.counts.stale += stale as u64;
        self.counts.damaged += damaged as u64;
        self.log.record(LogEntry::Taken { link: id, layer, good, stale, damaged });
        self.answer(id, LinkEvent::Taken { key, damaged: damaged > 0 });
        if revoked {
            let verified_tokens = self.end_expecting(to, key.reservation);
            self.send_input(to, Input::Revoked(key.reservation, verified_tokens));
        }
    }

    pub(super) fn is_copied(&self, to: ProcessId, reservation: ReservationId) -> bool {
        self.links.values().any(|link| link.copies(to, reservation))
    }

    /// Checks what is being copied for a reservation, now.
    fn finish_copies(&mut self, to: ProcessId, reservation: ReservationId) {
        let links: Vec<_> =
            self.links.iter().filter(|(_, link)| link.copies(to, reservation)).map(|(id, _)| *id).collect();
        for link in links {
            self.check(link);
        }
    }
}
