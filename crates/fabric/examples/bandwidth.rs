//! Hand-off speed over at least 1 GiB of pages: shared memory beside memcpy, tcp beside plain loopback, interleaved in one
//! run. `cargo run --release -p baton-fabric --example bandwidth`

#![allow(unsafe_code, reason = "memcpy between pools, to compare with")]

use std::error::Error;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Instant;

use baton_core::PageId;
use baton_fabric::{Delivered, KvLayout, KvPool, PageOrder, Receiver, Sender};

const ROUNDS: usize = 7;
const LAYERS: u32 = 16;
const PAGES: u32 = 1024;

fn main() -> Result<(), Box<dyn Error>> {
    // A 1B Llama: 8 KV heads of 64: 64 KiB per page and layer, 1 GiB in all.
    let layout = KvLayout { order: PageOrder::PairsBf16, layers: LAYERS, kv_heads: 8, head_dim: 64 };
    let bytes = layout.page_bytes() * PAGES as usize;
    let from = Arc::new(KvPool::new(layout.clone(), PAGES, 1)?);
    let to = Arc::new(KvPool::new(layout, PAGES, 1)?);
    for pool in [&from, &to] {
        let region = &pool.shards()[0].region;
        // SAFETY: touches every byte of a region nobody else uses yet.
        unsafe { std::slice::from_raw_parts_mut(region.base().as_ptr(), region.bytes()) }.fill(7);
    }
    let (shm, tcp) = (Pair::new(&from, &to, true)?, Pair::new(&from, &to, false)?);
    // Mappings and socket buffers are set up once per pair of engines, not once per hand-off.
    shm.hand_off()?;
    tcp.hand_off()?;
    let names = ["memcpy", "shm hand-off", "loopback tcp", "tcp hand-off"];
    let mut speeds = [const { Vec::new() }; 4];
    for _ in 0..ROUNDS {
        speeds[0].push(copy(&from, &to));
        speeds[1].push(shm.hand_off()?);
        speeds[2].push(loopback(&from, bytes)?);
        speeds[3].push(tcp.hand_off()?);
    }
    println!("{:.2} GiB, {ROUNDS} interleaved rounds, GB/s: median (range)", bytes as f64 / (1u64 << 30) as f64);
    let medians = speeds.map(|mut all| {
        all.sort_by(f64::total_cmp);
        (all[ROUNDS / 2] * bytes as f64 / 1e9, all[0] * bytes as f64 / 1e9, all[ROUNDS - 1] * bytes as f64 / 1e9)
    });
    for (name, (median, low, high)) in names.iter().zip(medians) {
        println!("{name:>13}  {median:6.2}  ({low:.2} to {high:.2})");
    }
    println!("shm / memcpy   {:.0} %", 100.0 * medians[1].0 / medians[0].0);
    println!("tcp / loopback {:.0} %", 100.0 * medians[3].0 / medians[2].0);
    Ok(())
}

fn block_pointers(pool: &KvPool) -> impl Iterator<Item = *mut u8> {
    (0..LAYERS).flat_map(move |layer| (0..PAGES).map(move |page| pool.shards()[0].block(layer, PageId(page))))
}

/// Pools per second.
fn copy(from: &KvPool, to: &KvPool) -> f64 {
    let started = Instant::now();
    let block = from.shards()[0].layout.block_bytes();
    for (source, target) in block_pointers(from).zip(block_pointers(to)) {
        // SAFETY: blocks of two different pools.
        unsafe { std::ptr::copy_nonoverlapping(source, target, block) };
    }
    1.0 / started.elapsed().as_secs_f64()
}

/// A sending and a receiving engine.
struct Pair {
    sender: Sender,
    receiver: Receiver,
}

impl Pair {
    fn new(from: &Arc<KvPool>, to: &Arc<KvPool>, shm: bool) -> Result<Self, Box<dyn Error>> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let receiver = Receiver::start(listener, to.clone(), "x".into(), shm, Arc::default(), |_| ())?;
        Ok(Self { sender: Sender::new(from.clone(), "x".into(), shm, Arc::default())?, receiver })
    }

    /// All pages, layer by layer in chunks of 512 tokens, as a prefill would offer them. Pools per second.
    fn hand_off(&self) -> Result<f64, Box<dyn Error>> {
        let pages: Vec<PageId> = (0..PAGES).map(PageId).collect();
        let target = self.receiver.expect(1, 0, PAGES * 32, pages.clone())?;
        let (tell, outcome) = channel();
        let export = self.sender.begin(&target, move |o| tell.send(o).unwrap_or(()))?;
        let started = Instant::now();
        for (at, chunk) in pages.chunks(16).enumerate() {
            for layer in 0..LAYERS {
                export.layer_done(layer, at as u32 * 16, chunk, true);
            }
        }
        export.finish();
        assert_eq!(outcome.recv()?, Ok(Delivered { verified_pages: PAGES, damaged: false }));
        let seconds = started.elapsed().as_secs_f64();
        self.receiver.revoke(&target);
        Ok(1.0 / seconds)
    }
}

fn loopback(from: &Arc<KvPool>, bytes: usize) -> Result<f64, Box<dyn Error>> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    let source = from.clone();
    let block = from.shards()[0].layout.block_bytes();
    let writer = std::thread::spawn(move || -> std::io::Result<()> {
        let mut stream = TcpStream::connect(address)?;
        for pointer in block_pointers(&source) {
            // SAFETY: a block of a live pool that nobody writes.
            stream.write_all(unsafe { std::slice::from_raw_parts(pointer, block) })?;
        }
        Ok(())
    });
    let (mut stream, _) = listener.accept()?;
    let mut buffer = vec![0; block];
    let (started, mut left) = (Instant::now(), bytes);
    while left > 0 {
        stream.read_exact(&mut buffer)?;
        left -= block;
    }
    let speed = 1.0 / started.elapsed().as_secs_f64();
    writer.join().map_err(|_| "the writer failed")??;
    Ok(speed)
}
