//! The fabric of a simulation. Like the real one it pulls: an offer names pages, and their bytes are read when it arrives.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use baton_compute::LayerHook;
use baton_core::{EngineCounters, PAGE_TOKENS, PageId, ReservationId, ServeError, TokenId, TokenRange};
use baton_engine::{ExportId, HandOff, PageOffer};

use crate::fake::{Kv, LAYERS, Random, mix};

pub(crate) struct Network {
    random: Random,
    pub(crate) now: Duration,
    nodes: Vec<Node>,
    packets: Vec<(Duration, Packet)>,
    pub(crate) happened: Happened,
}

#[derive(Debug, Default)]
pub(crate) struct Happened {
    /// Offers whose pages were reused before they arrived.
    pub(crate) stale: u64,
    pub(crate) damaged: u64,
    /// Offers to reservations that were gone.
    pub(crate) too_late: u64,
    pub(crate) repeated: u64,
    pub(crate) broken: u64,
}

struct Node {
    kv: Kv,
    expected: BTreeMap<ReservationId, Expected>,
    exports: BTreeMap<ExportId, Target>,
    answers: Vec<Answer>,
}

/// What the fabric has to tell a scheduler.
pub(crate) enum Answer {
    Landed(ReservationId),
    Exported(ExportId, Result<usize, String>),
}

struct Expected {
    prompt: Vec<TokenId>,
    begin: usize,
    pages: Vec<PageId>,
    verified: Vec<[bool; LAYERS as usize]>,
    last_arrival: Duration,
}

#[derive(Clone, Copy)]
struct Target {
    node: usize,
    reservation: ReservationId,
    range: TokenRange,
    broken: bool,
}

#[derive(Clone)]
enum Packet {
    Offer { from: usize, export: ExportId, to: Target, layer: u32, index: usize, page: PageId, sum: u64 },
    Finish { from: usize, export: ExportId, to: Target },
    Answer { to: usize, export: ExportId, outcome: Result<usize, String> },
}

impl Network {
    pub(crate) fn new(seed: u64, memories: Vec<Kv>) -> Arc<Mutex<Self>> {
        let node = |kv| Node { kv, expected: BTreeMap::new(), exports: BTreeMap::new(), answers: Vec::new() };
        Arc::new(Mutex::new(Self {
            random: Random(mix(seed, 77)),
            now: Duration::ZERO,
            nodes: memories.into_iter().map(node).collect(),
            packets: Vec::new(),
            happened: Happened::default(),
        }))
    }

    /// Delivers what is due; returns the answers for each node.
    pub(crate) fn advance(&mut self, now: Duration) -> Vec<Vec<Answer>> {
        self.now = now;
        self.packets.sort_by_key(|(due, _)| *due);
        let later = self.packets.partition_point(|(due, _)| *due <= now);
        let due: Vec<_> = self.packets.drain(..later).map(|(_, packet)| packet).collect();
        for packet in due {
            self.deliver(packet);
        }
        self.nodes.iter_mut().map(|node| std::mem::take(&mut node.answers)).collect()
    }

    pub(crate) fn is_quiet(&self) -> bool {
        self.nodes.iter().all(|node| node.expected.is_empty() && node.exports.is_empty())
    }

    /// Usually in order, sometimes long after.
    fn send(&mut self, packet: Packet) {
        let delay = if self.random.chance(3) { self.random.below(60) } else { self.random.below(4) };
        if self.random.chance(2) {
            self.happened.repeated += 1;
            let again = self.random.below(80);
            self.packets.push((self.now + Duration::from_millis(again), packet.clone()));
        }
        self.packets.push((self.now + Duration::from_millis(delay), packet));
    }

    fn offer(&mut self, from: usize, layer: u32, offer: &PageOffer) {
        let Some(&to) = self.nodes[from].exports.get(&offer.export) else { panic!("an offer of a closed export") };
        for (at, &page) in offer.pages.iter().enumerate() {
            let sum = sum(&self.nodes[from].kv.lock().unwrap()[page.index()]);
            let index = offer.first_index + at;
            self.send(Packet::Offer { from, export: offer.export, to, layer, index, page, sum });
        }
        if self.random.below(60) == 0 {
            self.break_link(from, offer.export);
        }
    }

    fn break_link(&mut self, from: usize, export: ExportId) {
        let Some(target) = self.nodes[from].exports.get_mut(&export) else { return };
        target.broken = true;
        self.happened.broken += 1;
        // Else nobody notices.
        if self.random.chance(80) {
            self.send(Packet::Answer { to: from, export, outcome: Err("broken".to_owned()) });
        }
    }

    fn deliver(&mut self, packet: Packet) {
        match packet {
            Packet::Offer { from, export, to, layer, index, page, sum: offered } => {
                let fence = self.nodes[from].exports.get(&export);
                if fence.is_some_and(|target| target.broken) {
                    return;
                }
                let fence_holds = fence.is_some();
                let mut bytes = self.nodes[from].kv.lock().unwrap()[page.index()];
                let now = self.now;
                let damaged = self.random.below(150) == 0;
                if damaged {
                    bytes[self.random.below(PAGE_TOKENS as u64) as usize] ^= 1;
                }
                let node = &mut self.nodes[to.node];
                let Some(expected) = node.expected.get_mut(&to.reservation) else {
                    self.happened.too_late += 1;
                    return;
                };
                let slot = index.checked_sub(expected.begin / PAGE_TOKENS).filter(|slot| *slot < expected.pages.len());
                let Some(slot) = slot else { return };
                // Copied first, checked after: what does not count has overwritten what did.
                node.kv.lock().unwrap()[expected.pages[slot].index()] = bytes;
                let good = sum(&bytes) == offered && fence_holds;
                expected.verified[slot][layer as usize] = good;
                self.happened.stale += u64::from(!fence_holds);
                self.happened.damaged += u64::from(damaged);
                if good {
                    expected.last_arrival = now;
                }
            }
            Packet::Finish { from, export, to } => {
                if self.nodes[from].exports.get(&export).is_some_and(|target| target.broken) {
                    return;
                }
                let node = &mut self.nodes[to.node];
                let verified = node.expected.get(&to.reservation).map_or(0, Expected::verified_tokens);
                if node.expected.contains_key(&to.reservation) {
                    node.answers.push(Answer::Landed(to.reservation));
                }
                self.send(Packet::Answer { to: from, export, outcome: Ok(verified) });
            }
            Packet::Answer { to, export, outcome } => self.nodes[to].answers.push(Answer::Exported(export, outcome)),
        }
    }
}

impl Expected {
    fn verified_tokens(&self) -> usize {
        let pages = self.verified.iter().take_while(|layers| layers.iter().all(|good| *good)).count();
        (self.begin + pages * PAGE_TOKENS).min(self.prompt.len())
    }
}

fn sum(page: &[u64; PAGE_TOKENS]) -> u64 {
    page.iter().fold(1, |sum, &kv| mix(sum, kv))
}

/// One scheduler's end of the network.
pub(crate) struct Port {
    pub(crate) node: usize,
    pub(crate) network: Arc<Mutex<Network>>,
}

impl HandOff for Port {
    fn expect(
        &mut self,
        id: ReservationId,
        prompt: &[TokenId],
        begin: usize,
        pages: &[PageId],
    ) -> Result<Vec<u8>, ServeError> {
        let mut network = self.network.lock().unwrap();
        assert_eq!((begin % PAGE_TOKENS, pages.len()), (0, prompt.len().div_ceil(PAGE_TOKENS) - begin / PAGE_TOKENS));
        let expected = Expected {
            prompt: prompt.to_vec(),
            begin,
            pages: pages.to_vec(),
            verified: vec![[false; LAYERS as usize]; pages.len()],
            last_arrival: network.now,
        };
        assert!(network.nodes[self.node].expected.insert(id, expected).is_none(), "a reservation's id comes again");
        let words = [self.node as u64, id.0, begin as u64, prompt.len() as u64];
        Ok(words.iter().flat_map(|word| word.to_le_bytes()).collect())
    }

    fn revoke(&mut self, id: ReservationId) -> usize {
        let mut network = self.network.lock().unwrap();
        let node = &mut network.nodes[self.node];
        let expected = node.expected.remove(&id).expect("revoked once");
        let verified = expected.verified_tokens();
        let memory = node.kv.lock().unwrap();
        let mut hash = 0;
        for (position, token) in expected.prompt[..verified].iter().enumerate() {
            hash = mix(hash, token.0.into());
            if let Some(at) = position.checked_sub(expected.begin) {
                let page = expected.pages[at / PAGE_TOKENS];
                assert_eq!(memory[page.index()][at % PAGE_TOKENS], hash, "position {position} counts as verified");
            }
        }
        verified
    }

    fn last_arrival(&mut self, id: ReservationId) -> Duration {
        self.network.lock().unwrap().nodes[self.node].expected[&id].last_arrival
    }

    fn begin_export(&mut self, id: ExportId, prompt: &[TokenId], target: &[u8]) -> Result<TokenRange, ServeError> {
        let words: Vec<_> = target.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word)).collect();
        let range = TokenRange::new(words[2] as u32, words[3] as u32).unwrap();
        assert!(range.end() as usize <= prompt.len());
        let (node, reservation) = (words[0] as usize, ReservationId(words[1]));
        let mut network = self.network.lock().unwrap();
        network.nodes[self.node].exports.insert(id, Target { node, reservation, range, broken: false });
        Ok(range)
    }

    fn offer(&mut self, offer: &PageOffer) {
        for layer in 0..LAYERS {
            self.network.lock().unwrap().offer(self.node, layer, offer);
        }
    }

    fn offer_by_layer(&mut self, offers: Vec<PageOffer>) -> LayerHook {
        let (node, network) = (self.node, Arc::clone(&self.network));
        LayerHook::new(move |layer| {
            for offer in &offers {
                network.lock().unwrap().offer(node, layer, offer);
            }
        })
    }

    fn finish_export(&mut self, id: ExportId) {
        let mut network = self.network.lock().unwrap();
        let to = network.nodes[self.node].exports[&id];
        assert!(to.range.end() > 0 || to.range.is_empty());
        // In order: after all that was offered.
        let last = network.packets.iter().filter(
            |(_, packet)| matches!(packet, Packet::Offer { export, from, .. } if (*export, *from) == (id, self.node)),
        );
        let due = last.map(|(due, _)| *due).max().unwrap_or(network.now);
        let finish = Packet::Finish { from: self.node, export: id, to };
        if network.random.chance(85) {
            network.packets.push((due, finish));
        } else {
            network.send(finish);
        }
    }

    fn close_export(&mut self, id: ExportId) {
        assert!(self.network.lock().unwrap().nodes[self.node].exports.remove(&id).is_some(), "closed once");
    }

    fn count(&self, _: &mut EngineCounters) {}
}
