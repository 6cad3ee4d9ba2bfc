//! One data connection from one engine to another: a thread at each end, messages in order, until it breaks.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use baton_core::{PageId, ReservationId, TokenRange};
use baton_engine::{ExportId, Exported};

use super::fence::Mark;
use super::{Key, State};
use crate::happening::Happening;
use crate::journal::Checker;
use crate::machine::{Letter, ProcessId};
use crate::model::Block;
use crate::mutation::Mutation;
use crate::random::mix;
use crate::weather::Transport;
use crate::world::Event;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct LinkId(u64);

pub(super) struct Link {
    pub(super) from: ProcessId,
    /// The engine it connects to, and the process that listens there; which may be slow to greet.
    pub(super) address: usize,
    pub(super) to: Option<ProcessId>,
    greeted: bool,
    pub(super) alive: bool,
    transport: Transport,
    pending: BTreeMap<Key, Pending>,
    /// The sending thread: what it has to do, and the offer it is about to write.
    jobs: VecDeque<Job>,
    working: bool,
    vouched: Option<Offer>,
    on_the_way: VecDeque<Message>,
    last_due: Duration,
    /// The receiving thread: what has arrived, and the copy it has yet to check.
    arrived: VecDeque<Message>,
    copy: Option<Copying>,
    last_answer: Duration,
}

/// A hand-off whose outcome is awaited.
struct Pending {
    export: ExportId,
    room: TokenRange,
    /// The receiver said so of some block.
    damaged: bool,
}

pub(super) enum Job {
    Offer { key: Key, mark: Mark, layer: u32, first_index: usize, pages: Vec<PageId> },
    Finish { key: Key },
}

#[derive(Clone)]
pub(crate) enum Message {
    Offer(Offer),
    Finish(Key),
}

#[derive(Clone)]
pub(crate) struct Offer {
    key: Key,
    mark: Mark,
    layer: u32,
    first_index: usize,
    pages: Vec<PageId>,
    sums: Vec<u64>,
    /// Whether the fence was really up when the sums were taken.
    in_time: bool,
    /// On tcp they come along.
    bytes: Option<Vec<Block>>,
}

struct Copying {
    key: Key,
    mark: Mark,
    layer: u32,
    in_time: bool,
    /// By place in the inbox: whether its sum is right.
    blocks: Vec<(usize, bool)>,
}

pub(crate) enum LinkEvent {
    Connect,
    /// The sending thread takes its next job.
    Work,
    Write,
    Arrived,
    /// A message that did not keep to the order.
    Stray(Box<Message>),
    /// The receiving thread looks at sums and fence of what it has copied.
    Check,
    /// The receiver's answer to an offer of which a block was not what its sum says.
    HeardDamaged(Key),
    /// The receiver's last answer: tokens that it has verified, if it still knew of the reservation.
    Heard(Key, Option<usize>),
}

impl State {
    /// The link to an engine, a new one when there is none.
    pub(super) fn link_to(&mut self, from: ProcessId, address: usize) -> LinkId {
        let mut links = self.links.iter();
        if let Some((&id, _)) = links.find(|(_, link)| link.alive && (link.from, link.address) == (from, address)) {
            return id;
        }
        let id = LinkId(self.next_link);
        self.next_link += 1;
        let link = Link {
            from,
            address,
            to: self.listening.get(&address).copied(),
            greeted: false,
            alive: true,
            transport: self.transfers.transport,
            pending: BTreeMap::new(),
            jobs: VecDeque::new(),
            working: false,
            vouched: None,
            on_the_way: VecDeque::new(),
            last_due: Duration::ZERO,
            arrived: VecDeque::new(),
            copy: None,
            last_answer: Duration::ZERO,
        };
        self.links.insert(id, link);
        let delay = self.random.micros(100, 2000);
        self.clock.after(delay, Event::Link(id, LinkEvent::Connect));
        id
    }

    pub(super) fn expect_outcome(&mut self, id: LinkId, key: Key, export: ExportId, room: TokenRange) {
        if let Some(link) = self.links.get_mut(&id) {
            link.pending.insert(key, Pending { export, room, damaged: false });
        }
    }

    pub(super) fn forget(&mut self, id: LinkId, key: Key) {
        if let Some(link) = self.links.get_mut(&id) {
            link.pending.remove(&key);
        }
    }

    pub(super) fn enqueue(&mut self, id: LinkId, job: Job) {
        let Some(link) = self.links.get_mut(&id) else { return };
        if link.alive {
            link.jobs.push_back(job);
            return self.work(id);
        }
        let (Job::Offer { key, .. } | Job::Finish { key }) = job;
        if let Some(Pending { export, .. }) = link.pending.remove(&key) {
            let from = link.from;
            self.exported(from, export, Err("the link is closed".to_owned()));
        }
    }

    /// Everything on the way is lost. The sender's hand-offs fail; the receiver just hears nothing more.
    pub(super) fn break_link(&mut self, id: LinkId) {
        let Some(link) = self.links.get_mut(&id).filter(|link| link.alive) else { return };
        link.alive = false;
        link.jobs.clear();
        link.on_the_way.clear();
        let (from, pending) = (link.from, std::mem::take(&mut link.pending));
        self.journal.note(Happening::LinkBroken(id));
        self.counts.links_broken += 1;
        for Pending { export, .. } in pending.into_values() {
            self.exported(from, export, Err("the connection broke".to_owned()));
        }
    }

    pub(super) fn handle(&mut self, id: LinkId, event: LinkEvent) {
        match event {
            LinkEvent::Connect => self.connect(id),
            LinkEvent::Work => self.do_job(id),
            LinkEvent::Write => self.write(id),
            LinkEvent::Arrived => {
                if let Some(link) = self.links.get_mut(&id)
                    && let Some(message) = link.on_the_way.pop_front()
                {
                    link.arrived.push_back(message);
                    self.take(id);
                }
            }
            LinkEvent::Stray(message) => {
                if let Some(link) = self.links.get_mut(&id).filter(|link| link.alive) {
                    link.arrived.push_back(*message);
                    self.take(id);
                }
            }
            LinkEvent::Check => {
                self.check(id);
                self.take(id);
            }
            LinkEvent::HeardDamaged(key) => {
                if let Some(pending) = self.links.get_mut(&id).and_then(|link| link.pending.get_mut(&key)) {
                    pending.damaged = true;
                }
            }
            LinkEvent::Heard(key, verified) => {
                if let Some(link) = self.links.get_mut(&id)
                    && let Some(Pending { export, room, damaged }) = link.pending.remove(&key)
                {
                    let (from, verified_tokens) = (link.from, verified.unwrap_or(room.begin() as usize));
                    self.exported(from, export, Ok(Exported { verified_tokens, damaged }));
                }
            }
        }
    }

    fn connect(&mut self, id: LinkId) {
        let Some(link) = self.links.get_mut(&id) else { return };
        link.greeted = link.to.is_some();
        if link.greeted { self.work(id) } else { self.break_link(id) }
    }

    fn work(&mut self, id: LinkId) {
        let Some(link) = self.links.get_mut(&id) else { return };
        if link.greeted && !link.jobs.is_empty() && !std::mem::replace(&mut link.working, true) {
            let lag = self.transfers.lag(&mut self.random);
            self.clock.after(lag, Event::Link(id, LinkEvent::Work));
        }
    }

    /// Sums first, then the fence: sums of pages that were reused meanwhile would vouch for the wrong bytes.
    fn do_job(&mut self, id: LinkId) {
        let Some(link) = self.links.get_mut(&id) else { return };
        link.working = false;
        let Some(node) = self.nodes.get(&link.from).filter(|node| node.alive) else { return };
        match link.jobs.pop_front() {
            Some(Job::Offer { key, mark, layer, first_index, pages }) => {
                let sums = pages.iter().map(|&page| sum(&node.memory.block(page, layer))).collect();
                let in_time = node.fences.holds(mark);
                if in_time || self.mutation == Some(Mutation::SkipFence) {
                    link.vouched = Some(Offer { key, mark, layer, first_index, pages, sums, in_time, bytes: None });
                    link.working = true;
                    let delay = self.random.micros(1, 60);
                    return self.clock.after(delay, Event::Link(id, LinkEvent::Write));
                }
                self.counts.withheld += 1;
                self.journal.note(Happening::Withheld(id));
            }
            Some(Job::Finish { key }) => self.send(id, Message::Finish(key)),
            None => {}
        }
        self.work(id);
    }

    fn write(&mut self, id: LinkId) {
        let Some(link) = self.links.get_mut(&id) else { return };
        link.working = false;
        let Some(node) = self.nodes.get(&link.from).filter(|node| node.alive) else { return };
        let Some(mut offer) = link.vouched.take() else { return };
        if link.transport == Transport::Tcp {
            offer.bytes = Some(offer.pages.iter().map(|&page| node.memory.block(page, offer.layer)).collect());
        }
        let Offer { layer, first_index, .. } = offer;
        self.journal.note(Happening::Offered { link: id, layer, first_index, pages: offer.pages.len() });
        self.send(id, Message::Offer(offer));
        self.work(id);
    }

    fn send(&mut self, id: LinkId, message: Message) {
        let Some(link) = self.links.get_mut(&id).filter(|link| link.alive) else { return };
        if self.random.per_mille(self.transfers.repeat_per_mille) {
            self.counts.repeated += 1;
            let stray = LinkEvent::Stray(Box::new(message.clone()));
            self.clock.after(self.random.millis(0, 80), Event::Link(id, stray));
        }
        if self.random.per_mille(self.transfers.reorder_per_mille) {
            self.counts.out_of_order += 1;
            let stray = LinkEvent::Stray(Box::new(message));
            return self.clock.after(self.random.millis(0, 30), Event::Link(id, stray));
        }
        let due = (self.clock.now() + self.transfers.latency(&mut self.random)).max(link.last_due);
        link.last_due = due;
        link.on_the_way.push_back(message);
        self.clock.at(due, Event::Link(id, LinkEvent::Arrived));
    }

    /// One message after the other: the next is looked at when the copy before it has been checked.
    fn take(&mut self, id: LinkId) {
        loop {
            let Some(link) = self.links.get_mut(&id) else { return };
            let Some(to) = link.to.filter(|to| link.copy.is_none() && self.nodes.get(to).is_some_and(|n| n.alive))
            else {
                return;
            };
            match link.arrived.pop_front() {
                Some(Message::Offer(offer)) => self.copy(id, to, offer),
                Some(Message::Finish(key)) => self.finished(id, to, key),
                None => return,
            }
        }
    }

    fn finished(&mut self, id: LinkId, to: ProcessId, key: Key) {
        let inbox = self.nodes.get(&to).and_then(|node| node.inboxes.get(&key));
        let verified = inbox.map(|inbox| inbox.verified_tokens());
        if verified.is_some() {
            let reservation = key.reservation;
            self.journal.note(Happening::Landed { process: to, reservation });
            self.tell(to, Letter::Landed(reservation));
        }
        self.answer(id, LinkEvent::Heard(key, verified));
    }

    /// In the order of what it answers.
    fn answer(&mut self, id: LinkId, answer: LinkEvent) {
        let Some(link) = self.links.get_mut(&id) else { return };
        let due = (self.clock.now() + self.transfers.latency(&mut self.random)).max(link.last_answer);
        link.last_answer = due;
        self.clock.at(due, Event::Link(id, answer));
    }

    fn copy(&mut self, id: LinkId, to: ProcessId, offer: Offer) {
        let Some(link) = self.links.get_mut(&id) else { return };
        let (Some(sender), Some(receiver)) = (self.nodes.get(&link.from), self.nodes.get(&to)) else { return };
        let Some(inbox) = receiver.inboxes.get(&offer.key) else {
            self.counts.unknown += 1;
            return self.journal.note(Happening::Unknown(id));
        };
        let mut blocks = Vec::new();
        for (at, (&page, &vouched)) in offer.pages.iter().zip(&offer.sums).enumerate() {
            let Some(slot) = inbox.slot(offer.first_index + at) else { continue };
            let mut block = match &offer.bytes {
                Some(bytes) => bytes[at],
                None => sender.memory.block(page, offer.layer),
            };
            if self.random.per_mille(self.transfers.flip_per_mille) {
                block[self.random.index(block.len())] ^= 1 << self.random.below(64);
            }
            // Copied first, checked after: what does not count has overwritten what did.
            receiver.memory.put(inbox.pages[slot], offer.layer, block);
            blocks.push((slot, sum(&block) == vouched));
        }
        let Offer { key, mark, layer, in_time, .. } = offer;
        link.copy = Some(Copying { key, mark, layer, in_time, blocks });
        let delay = self.random.micros(1, 40);
        self.clock.after(delay, Event::Link(id, LinkEvent::Check));
    }

    fn check(&mut self, id: LinkId) {
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
        let Some(inbox) = receiver.inboxes.get_mut(&key) else { return };
        let (mut good, mut stale, mut damaged) = (0, 0, 0);
        for (slot, sum_is_right) in blocks {
            inbox.landed[slot][layer as usize] = sum_is_right && counts;
            if !sum_is_right {
                damaged += 1;
            } else if !counts {
                stale += 1;
            } else {
                good += 1;
                inbox.last_arrival = self.clock.now();
                let (begin, end) = inbox.span(slot);
                if !in_time {
                    let message = format!("{to:?} counts KV that {:?} no longer vouched for", link.from);
                    self.journal.blame(Checker::Fence, message);
                } else if !receiver.memory.holds(layer, &inbox.prompt, begin, end, &inbox.pages[slot..]) {
                    let message = format!("{to:?} counts KV [{begin}, {end}) that is not its prompt's");
                    self.journal.blame(Checker::Kv, message);
                }
            }
        }
        self.counts.taken += good as u64;
        self.counts.stale += stale as u64;
        self.counts.damaged += damaged as u64;
        self.journal.note(Happening::Taken { link: id, layer, good, stale, damaged });
        if damaged > 0 {
            self.answer(id, LinkEvent::HeardDamaged(key));
        }
    }

    /// Checks what is being copied for a reservation, now.
    pub(super) fn finish_copies(&mut self, to: ProcessId, reservation: ReservationId) {
        let concerns = |link: &Link| {
            link.to == Some(to) && link.copy.as_ref().is_some_and(|copy| copy.key.reservation == reservation)
        };
        let links: Vec<_> = self.links.iter().filter(|(_, link)| concerns(link)).map(|(id, _)| *id).collect();
        for link in links {
            self.check(link);
        }
    }
}

fn sum(block: &Block) -> u64 {
    block.iter().fold(1, |sum, &kv| mix(sum, kv))
}
