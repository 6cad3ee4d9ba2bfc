//! Speed of hand-offs, beside the least they consist of: copying memory, and tcp to the same machine.
#![allow(unsafe_code, reason = "blocks of KV pools are copied as they are; each block states why it is sound")]

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use baton_core::{PAGE_TOKENS, PageId, PromptTimes};
use baton_fabric::{
    Chunk, Computed, Delivered, FabricError, FabricOptions, HostMemory, KvLayout, LayerCounter, PageOrder, PortKey,
    PortLimits, Receiver, Sender, Transport,
};

/// Two KV pools of a Llama with 1B parameters, and the ways from one to the other. Every call moves all pages, so that no cache
/// holds them.
pub(crate) struct EnginePair {
    from: Arc<HostMemory>,
    to: Arc<HostMemory>,
    shm: TransportPath,
    tcp: TransportPath,
}

/// Pages that a prefill offers at once.
const CHUNK_PAGES: usize = 512 / PAGE_TOKENS;

impl EnginePair {
    /// 1 MiB per page, in each of both pools.
    pub(crate) fn new(pages: u32) -> Result<Self, FabricError> {
        let layout = KvLayout { order: PageOrder::InterleavedBf16, layers: 16, kv_heads: 8, head_dim: 64 };
        let pool = || HostMemory::new(layout.clone(), pages, 1).map(Arc::new).map_err(FabricError::Memory);
        let (from, to) = (pool()?, pool()?);
        for shard in from.shards().iter().chain(to.shards()) {
            // SAFETY: touches every byte of a region that nothing else uses yet.
            unsafe { std::slice::from_raw_parts_mut(shard.region.base().as_ptr(), shard.region.bytes()) }.fill(7);
        }
        let (shm, tcp) = (TransportPath::new(&from, &to, true)?, TransportPath::new(&from, &to, false)?);
        Ok(Self { from, to, shm, tcp })
    }

    /// Bytes that one call moves.
    pub(crate) fn bytes(&self) -> usize {
        self.from.layout().page_bytes() * self.from.pages() as usize
    }

    /// Copies block by block, on one thread.
    pub(crate) fn memcpy(&self) -> Duration {
        let started = Instant::now();
        for (from, to) in blocks(&self.from).zip(blocks(&self.to)) {
            // SAFETY: blocks of two different pools, which no hand-off uses now.
            unsafe { std::ptr::copy_nonoverlapping(from, to, block_bytes(&self.from)) };
        }
        started.elapsed()
    }

    /// Sends block by block from one thread to another over tcp, without checking what arrives.
    pub(crate) fn loopback(&self) -> Result<Duration, FabricError> {
        let listener = TcpListener::bind("127.0.0.1:0").map_err(FabricError::Connect)?;
        let address = listener.local_addr().map_err(FabricError::Connect)?;
        let (source, block) = (Arc::clone(&self.from), block_bytes(&self.from));
        let writer = std::thread::spawn(move || {
            let mut stream = TcpStream::connect(address)?;
            blocks(&source).try_for_each(|pointer| {
                // SAFETY: a block of a live pool that nothing writes.
                stream.write_all(unsafe { std::slice::from_raw_parts(pointer, block) })
            })
        });
        let (mut stream, _) = listener.accept().map_err(FabricError::Connect)?;
        let mut buffer = vec![0; block];
        let started = Instant::now();
        for _ in blocks(&self.from) {
            stream.read_exact(&mut buffer).map_err(FabricError::Connect)?;
        }
        let time = started.elapsed();
        let written = writer.join().map_err(|_| FabricError::Broken("the writer failed".to_owned()))?;
        written.map_err(FabricError::Connect)?;
        Ok(time)
    }

    /// Hands all pages off: they are checksummed, offered, copied and verified.
    pub(crate) fn over(&self, transport: Transport) -> Result<Duration, FabricError> {
        match transport {
            Transport::Shm => self.shm.hand_off(&self.from),
            Transport::Tcp => self.tcp.hand_off(&self.from),
        }
    }
}

fn block_bytes(pool: &HostMemory) -> usize {
    pool.shards()[0].layout.block_bytes()
}

fn blocks(pool: &HostMemory) -> impl Iterator<Item = *mut u8> {
    let pages = pool.pages();
    (0..pool.layout().layers)
        .flat_map(move |layer| (0..pages).map(move |page| pool.shards()[0].block(layer, PageId(page))))
}

/// A sending and a receiving engine.
struct TransportPath {
    sender: Sender,
    receiver: Receiver,
}

impl TransportPath {
    fn new(from: &Arc<HostMemory>, to: &Arc<HostMemory>, shm: bool) -> Result<Self, FabricError> {
        let listener = TcpListener::bind("127.0.0.1:0").map_err(FabricError::Connect)?;
        let (numerics_id, key) = ("x".to_owned(), PortKey::new([0; 32]));
        let options = FabricOptions { numerics_id, shm_allowed: shm, key, limits: PortLimits::default() };
        let receiver = Receiver::start(listener, to.clone(), options.clone(), Arc::default(), |_| ())?;
        Ok(Self { sender: Sender::new(from.clone(), LayerCounter::default(), options, Arc::default())?, receiver })
    }

    /// All pages, layer by layer in chunks, as a prefill would offer them.
    fn hand_off(&self, from: &HostMemory) -> Result<Duration, FabricError> {
        let pages: Vec<PageId> = (0..from.pages()).map(PageId).collect();
        let target = self.receiver.expect(1, 0, from.pages() * PAGE_TOKENS as u32, pages.clone())?;
        let (report, outcome) = channel();
        let export = self.sender.begin(&target, move |delivered| report.send(delivered).unwrap_or(()))?;
        let started = Instant::now();
        for (at, chunk) in pages.chunks(CHUNK_PAGES).enumerate() {
            let (first_index, pages) = ((at * CHUNK_PAGES) as u32, chunk.to_vec());
            export.offer(Chunk { first_index, pages, computed: Computed::Already, last: false });
        }
        export.finish(PromptTimes::default());
        let delivered = outcome.recv().map_err(|_| FabricError::Broken("no outcome".to_owned()))?;
        let time = started.elapsed();
        self.receiver.revoke(&target);
        match delivered {
            Ok(Delivered { verified_pages, damaged: false }) if verified_pages == from.pages() => Ok(time),
            Ok(other) => Err(FabricError::Broken(format!("not all pages were verified: {other:?}"))),
            Err(message) => Err(FabricError::Broken(message)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_pages_arrive_every_way() {
        let hand_offs = EnginePair::new(20).unwrap();
        assert_eq!(hand_offs.bytes(), 20 << 20);
        assert!(!hand_offs.memcpy().is_zero());
        assert!(!hand_offs.loopback().unwrap().is_zero());
        for transport in [Transport::Shm, Transport::Tcp] {
            // Twice: pages are free for the next hand-off.
            assert!(!hand_offs.over(transport).unwrap().is_zero());
            assert!(!hand_offs.over(transport).unwrap().is_zero());
        }
    }
}
