//! One engine's end of the fabric.

use std::collections::VecDeque;
use std::time::Duration;

use baton_core::{EngineCounters, PageId, PromptTimes, ReservationId, ServeError, TokenId, TokenRange};
use baton_engine::{Computed, ExportId, HandOff, HandedPrompt, PageOffer};

use super::expected::ExpectedKv;
use super::fence::Mark;
use super::link::Job;
use super::message::Key;
use super::{Fabric, State};
use crate::clock::lock;
use crate::event::Event;
use crate::event_log::Checker;
use crate::ids::{LinkId, ProcessId};
use crate::log_entry::LogEntry;
use crate::model::LAYERS;
use crate::mutation::Mutation;
use crate::random::mix;

pub(crate) struct Port {
    pub(super) engine: usize,
    pub(super) process: ProcessId,
    pub(super) fabric: Fabric,
}

/// One hand-off in progress.
pub(super) struct OpenExport {
    pub(super) mark: Mark,
    pub(super) link: LinkId,
    pub(super) key: Key,
    /// Not final in all layers yet.
    computing: VecDeque<PageOffer>,
    /// Of the first of them.
    final_layers: u32,
    /// Pages and layers that the fence protects.
    offered: Vec<(PageId, u32)>,
}

/// Where to hand over to; travels through routers as bytes.
struct Target {
    engine: usize,
    key: Key,
    room: TokenRange,
    prompt: u64,
}

impl HandOff for Port {
    fn expect(
        &mut self,
        id: ReservationId,
        prompt: HandedPrompt<'_>,
        begin: usize,
        pages: &[PageId],
    ) -> Result<Vec<u8>, ServeError> {
        let mut state = lock(&self.fabric.0);
        let key = Key { reservation: id, secret: state.random.next() };
        let expected = ExpectedKv {
            prompt: prompt.tokens.to_vec(),
            begin,
            pages: pages.to_vec(),
            landed: vec![[false; LAYERS as usize]; pages.len()],
            last_arrival: state.clock.now(),
            revoked: false,
        };
        let (process, end) = (self.process, prompt.tokens.len());
        state.log.record(LogEntry::Expected { process, reservation: id, begin, end });
        if let Some(node) = state.nodes.get_mut(&self.process) {
            node.memory.expect(pages, true);
            node.expected.insert(key, expected);
        }
        let room = TokenRange::new(begin as u32, end as u32).unwrap_or_default();
        Ok(Target { engine: self.engine, key, room, prompt: digest(prompt.tokens) }.to_bytes())
    }

    fn revoke(&mut self, id: ReservationId) -> Option<usize> {
        lock(&self.fabric.0).revoke(self.process, id)
    }

    fn last_arrival(&mut self, id: ReservationId) -> Duration {
        let state = lock(&self.fabric.0);
        let expected = state.nodes.get(&self.process).map(|node| &node.expected);
        let mut expected = expected.into_iter().flatten();
        expected.find(|(key, _)| key.reservation == id).map_or(Duration::ZERO, |(_, expected)| expected.last_arrival)
    }

    fn begin_export(
        &mut self,
        id: ExportId,
        prompt: HandedPrompt<'_>,
        target: &[u8],
    ) -> Result<TokenRange, ServeError> {
        let Some(target) = Target::from_bytes(target) else { return Err(ServeError::caller("not a target")) };
        if prompt.tokens.get(..target.room.end() as usize).map(digest) != Some(target.prompt) {
            return Err(ServeError::caller("the receiver expects another prompt"));
        }
        let mut state = lock(&self.fabric.0);
        let link = state.link_to(self.process, target.engine);
        state.log.record(LogEntry::Export { process: self.process, export: id, link });
        if let Some(node) = state.nodes.get_mut(&self.process) {
            let mark = node.fences.open();
            let (computing, offered) = (VecDeque::new(), Vec::new());
            node.exports.insert(id, OpenExport { mark, link, key: target.key, computing, final_layers: 0, offered });
        }
        state.expect_outcome(link, target.key, id, target.room);
        Ok(target.room)
    }

    fn offer(&mut self, offer: PageOffer) {
        let mut state = lock(&self.fabric.0);
        let Some(node) = state.nodes.get_mut(&self.process) else { return };
        let Some(export) = node.exports.get_mut(&offer.export) else { return };
        let id = offer.export;
        export.computing.push_back(offer);
        state.offer_final(self.process, id);
    }

    fn finish_export(&mut self, id: ExportId, times: PromptTimes) {
        let mut state = lock(&self.fabric.0);
        let export = state.nodes.get(&self.process).and_then(|node| node.exports.get(&id));
        if let Some((link, key)) = export.map(|export| (export.link, export.key)) {
            state.enqueue(link, Job::Finish { key, times });
        }
    }

    fn last_taken(&mut self, id: ExportId) -> Duration {
        let state = lock(&self.fabric.0);
        let export = state.nodes.get(&self.process).and_then(|node| node.exports.get(&id));
        export.and_then(|export| state.last_taken(export.link, export.key)).unwrap_or_default()
    }

    fn close_export(&mut self, id: ExportId) {
        let mut state = lock(&self.fabric.0);
        state.log.record(LogEntry::ExportClosed { process: self.process, export: id });
        if state.mutation == Some(Mutation::ReuseOfferedPagesEarly) {
            let delay = state.random.millis(1, 40);
            state.clock.after(delay, Event::CloseFence(self.process, id));
        } else {
            state.close(self.process, id);
        }
    }

    fn count(&self, _: &mut EngineCounters) {}
}

impl State {
    pub(super) fn layers_done(&mut self, process: ProcessId, layers_done: u64) {
        let Some(node) = self.nodes.get_mut(&process) else { return };
        node.layers_done = layers_done;
        let exports: Vec<_> = node.exports.keys().copied().collect();
        for export in exports {
            self.offer_final(process, export);
        }
    }

    /// Whatever has become final is handed to the link, in order.
    fn offer_final(&mut self, process: ProcessId, id: ExportId) {
        loop {
            let Some(node) = self.nodes.get_mut(&process).filter(|node| node.alive) else { return };
            let Some(export) = node.exports.get_mut(&id) else { return };
            let (layer, Some(offer)) = (export.final_layers, export.computing.front()) else { return };
            let is_final = match offer.computed {
                Computed::Already => true,
                Computed::InStep(step) => node.layers_done > step * u64::from(LAYERS) + u64::from(layer),
            };
            if !is_final {
                return;
            }
            let (key, mark, link) = (export.key, export.mark, export.link);
            let (first_index, pages) = (offer.first_index, offer.pages.clone());
            for &page in &pages {
                node.memory.offer(page, layer);
                export.offered.push((page, layer));
            }
            export.final_layers += 1;
            if export.final_layers == LAYERS {
                export.computing.pop_front();
                export.final_layers = 0;
            }
            if !pages.is_empty() {
                self.enqueue(link, Job::Offer { key, mark, layer, first_index, pages });
            }
        }
    }

    /// A dead process closes nothing.
    pub(super) fn close(&mut self, process: ProcessId, id: ExportId) {
        let Some(node) = self.nodes.get_mut(&process).filter(|node| node.alive) else { return };
        let Some(export) = node.exports.remove(&id) else { return };
        node.fences.close(export.mark);
        for (page, layer) in export.offered {
            node.memory.withdraw(page, layer);
        }
        self.forget(export.link, export.key);
    }

    fn revoke(&mut self, process: ProcessId, id: ReservationId) -> Option<usize> {
        if !self.is_copied(process, id) {
            return Some(self.end_expecting(process, id));
        }
        self.counts.revoked_in_copy += 1;
        let node = self.nodes.get_mut(&process)?;
        let (_, expected) = node.expected.iter_mut().find(|(key, _)| key.reservation == id)?;
        expected.revoked = true;
        (self.mutation == Some(Mutation::ReportRevokedInCopy)).then(|| expected.verified_tokens())
    }

    /// A reservation's pages are written no more. Returns the tokens that are verified.
    pub(super) fn end_expecting(&mut self, process: ProcessId, id: ReservationId) -> usize {
        let Some(node) = self.nodes.get_mut(&process) else { return 0 };
        let Some(key) = node.expected.keys().find(|key| key.reservation == id).copied() else { return 0 };
        let Some(expected) = node.expected.remove(&key) else { return 0 };
        node.memory.expect(&expected.pages, false);
        let verified = expected.verified_tokens();
        let holds = |layer| node.memory.holds(layer, &expected.prompt, expected.begin, verified, &expected.pages);
        if node.alive && !(0..LAYERS).all(holds) {
            let message =
                format!("{process:?}: {verified} tokens of reservation {id} count, but are not its prompt's KV");
            self.log.report_violation(Checker::Kv, message);
        }
        self.log.record(LogEntry::Revoked { process, reservation: id, verified });
        verified
    }
}

impl Target {
    fn to_bytes(&self) -> Vec<u8> {
        let words = [
            self.engine as u64,
            self.key.reservation.0,
            self.key.secret,
            self.room.begin().into(),
            self.room.end().into(),
            self.prompt,
        ];
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let mut words = bytes.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word));
        let mut word = || words.next();
        Some(Self {
            engine: word()? as usize,
            key: Key { reservation: ReservationId(word()?), secret: word()? },
            room: TokenRange::new(word()? as u32, word()? as u32)?,
            prompt: word()?,
        })
    }
}

fn digest(prompt: &[TokenId]) -> u64 {
    prompt.iter().fold(5, |digest, token| mix(digest, token.0.into()))
}
