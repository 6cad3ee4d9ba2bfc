//! One data connection from one engine to another: a thread at each end, messages in order, until it breaks.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use baton_core::{PageId, PromptTimes, TokenRange};
use baton_engine::{ExportId, Exported};

use super::State;
use super::fence::Mark;
use super::message::sum;
use super::message::{Key, LinkEvent, Message, Offer};
use super::receiving::Copying;
use crate::event::Event;
use crate::ids::{LinkId, ProcessId};
use crate::log_entry::LogEntry;
use crate::mutation::Mutation;
use crate::scenario::Transport;

pub(super) struct Link {
    pub(super) from: ProcessId,
    /// The engine it connects to, and the process that listens there.
    pub(super) address: usize,
    pub(super) to: Option<ProcessId>,
    connected: bool,
    pub(super) alive: bool,
    pub(super) transport: Transport,
    pending: BTreeMap<Key, Pending>,
    /// The sending thread: what it has to do, whose turn it was last, and the offer it is about to write.
    jobs: VecDeque<Job>,
    served: Option<Key>,
    working: bool,
    next_offer: Option<Offer>,
    in_flight: VecDeque<Message>,
    last_due: Duration,
    /// The receiving thread: what has arrived, and the copy it has yet to check.
    pub(super) arrived: VecDeque<Message>,
    pub(super) copy: Option<Copying>,
    pub(super) last_answer: Duration,
}

/// A hand-off whose outcome is awaited.
struct Pending {
    export: ExportId,
    room: TokenRange,
    /// The receiver has reported a damaged block.
    damaged: bool,
    /// When the receiver last answered an offer.
    last_taken: Duration,
}

pub(super) enum Job {
    Offer { key: Key, mark: Mark, layer: u32, first_index: usize, pages: Vec<PageId> },
    Finish { key: Key, times: PromptTimes },
}

impl Job {
    fn key(&self) -> Key {
        match self {
            Self::Offer { key, .. } | Self::Finish { key, .. } => *key,
        }
    }
}

impl Link {
    /// Hand-offs take turns; within one the order stays.
    fn next_job(&mut self) -> Option<Job> {
        let behind = self.jobs.iter().map(Job::key).filter(|key| Some(*key) > self.served).min();
        self.served = behind.or_else(|| self.jobs.iter().map(Job::key).min());
        let at = self.jobs.iter().position(|job| Some(job.key()) == self.served)?;
        self.jobs.remove(at)
    }
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
            connected: false,
            alive: true,
            transport: self.transfers.transport,
            pending: BTreeMap::new(),
            jobs: VecDeque::new(),
            served: None,
            working: false,
            next_offer: None,
            in_flight: VecDeque::new(),
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
        let last_taken = self.clock.now();
        if let Some(link) = self.links.get_mut(&id) {
            link.pending.insert(key, Pending { export, room, damaged: false, last_taken });
        }
    }

    pub(super) fn last_taken(&self, id: LinkId, key: Key) -> Option<Duration> {
        Some(self.links.get(&id)?.pending.get(&key)?.last_taken)
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
        if let Some(Pending { export, .. }) = link.pending.remove(&job.key()) {
            let from = link.from;
            self.exported(from, export, Err("the link is closed".to_owned()));
        }
    }

    /// Drops everything in flight. The sender's hand-offs fail; the receiver gets no message.
    pub(super) fn break_link(&mut self, id: LinkId) {
        let Some(link) = self.links.get_mut(&id).filter(|link| link.alive) else { return };
        link.alive = false;
        link.jobs.clear();
        link.in_flight.clear();
        let (from, pending) = (link.from, std::mem::take(&mut link.pending));
        self.log.record(LogEntry::LinkBroken(id));
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
                    && let Some(message) = link.in_flight.pop_front()
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
            LinkEvent::Taken { key, damaged } => {
                if let Some(pending) = self.links.get_mut(&id).and_then(|link| link.pending.get_mut(&key)) {
                    pending.damaged |= damaged;
                    pending.last_taken = self.clock.now();
                }
            }
            LinkEvent::Outcome(key, verified) => {
                if let Some(link) = self.links.get_mut(&id)
                    && let Some(Pending { export, room, damaged, .. }) = link.pending.remove(&key)
                {
                    let (from, verified_tokens) = (link.from, verified.unwrap_or(room.begin() as usize));
                    self.exported(from, export, Ok(Exported { verified_tokens, damaged }));
                }
            }
        }
    }

    fn connect(&mut self, id: LinkId) {
        let Some(link) = self.links.get_mut(&id) else { return };
        link.connected = link.to.is_some();
        if link.connected { self.work(id) } else { self.break_link(id) }
    }

    fn work(&mut self, id: LinkId) {
        let Some(link) = self.links.get_mut(&id) else { return };
        if link.connected && !link.jobs.is_empty() && !std::mem::replace(&mut link.working, true) {
            let lag = self.transfers.lag(&mut self.random);
            self.clock.after(lag, Event::Link(id, LinkEvent::Work));
        }
    }

    /// Takes checksums before looking at the fence: checksums of pages that were reused meanwhile would match wrong bytes.
    fn do_job(&mut self, id: LinkId) {
        let Some(link) = self.links.get_mut(&id) else { return };
        link.working = false;
        let Some(node) = self.nodes.get(&link.from).filter(|node| node.alive) else { return };
        match link.next_job() {
            Some(Job::Offer { key, mark, layer, first_index, pages }) => {
                let sums = pages.iter().map(|&page| sum(&node.memory.block(page, layer))).collect();
                let in_time = node.fences.holds(mark);
                if in_time || self.mutation == Some(Mutation::SkipFence) {
                    link.next_offer = Some(Offer { key, mark, layer, first_index, pages, sums, in_time, bytes: None });
                    link.working = true;
                    let delay = self.random.micros(1, 60);
                    return self.clock.after(delay, Event::Link(id, LinkEvent::Write));
                }
                self.counts.withheld += 1;
                self.log.record(LogEntry::Withheld(id));
            }
            Some(Job::Finish { key, times }) => self.send(id, Message::Finish(key, times)),
            None => {}
        }
        self.work(id);
    }

    fn write(&mut self, id: LinkId) {
        let Some(link) = self.links.get_mut(&id) else { return };
        link.working = false;
        let Some(node) = self.nodes.get(&link.from).filter(|node| node.alive) else { return };
        let Some(mut offer) = link.next_offer.take() else { return };
        if link.transport == Transport::Tcp {
            offer.bytes = Some(offer.pages.iter().map(|&page| node.memory.block(page, offer.layer)).collect());
        }
        let Offer { layer, first_index, .. } = offer;
        self.log.record(LogEntry::Offered { link: id, layer, first_index, pages: offer.pages.len() });
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
        link.in_flight.push_back(message);
        self.clock.at(due, Event::Link(id, LinkEvent::Arrived));
    }
}
