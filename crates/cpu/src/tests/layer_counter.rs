//! What a hand-off relies on: a layer that is counted as done does not change any more, and its pages alone make another backend
//! go on as if it had computed them itself.

use std::ops::Range;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use baton_core::PageId;
use baton_fabric::HostMemory;
use baton_model::Dtype;

use super::runner::{Sequence, Setup, run_alone};
use super::tiny::{TinyModel, block_spec, odd_spec};
use crate::{CpuBackend, KvDtype};
use baton_backend::{Backend, InputToken, Segment, SegmentOutput, StepOutput, StepPlan, TableChange};

const LEN: usize = 90;
const SPLIT: usize = 75;
/// Of all models here.
const LAYERS: u32 = 2;
/// After this long a copy must have been made while a step ran, however busy the machine is. A step takes 3 ms.
const PATIENCE: Duration = Duration::from_secs(100);

/// Of each shard.
fn blocks(pool: &HostMemory, layer: u32, page: PageId) -> Vec<Vec<u8>> {
    let blocks = pool.shards().iter().map(|shard| {
        // SAFETY: a block of the pool; no thread writes it now.
        unsafe { std::slice::from_raw_parts(shard.block(layer, page), shard.layout.block_bytes()) }.to_vec()
    });
    blocks.collect()
}

fn write(pool: &HostMemory, layer: u32, page: PageId, blocks: &[Vec<u8>]) {
    for (shard, bytes) in pool.shards().iter().zip(blocks) {
        // SAFETY: a block of the pool; no step runs.
        unsafe { shard.block(layer, page).copy_from(bytes.as_ptr(), bytes.len()) };
    }
}

/// Of each page.
type Copy = Vec<Vec<Vec<u8>>>;

fn copy(pool: &HostMemory, layer: u32, pages: &[PageId]) -> Copy {
    pages.iter().map(|&page| blocks(pool, layer, page)).collect()
}

fn compute(backend: &mut CpuBackend, sequence: &Sequence, tokens: Range<usize>) {
    let plan = StepPlan {
        admitted: vec![(sequence.slot, sequence.spec())],
        segments: vec![Segment {
            slot: sequence.slot,
            tokens: 0..tokens.len(),
            first_position: tokens.start,
            adapter: None,
            output: SegmentOutput::default(),
        }],
        tokens: sequence.tokens[tokens].iter().map(|&token| InputToken::Known(token)).collect(),
        tables: vec![TableChange { slot: sequence.slot, first: 0, pages: 0..sequence.pages.len() }],
        pages: sequence.pages.clone(),
        released: vec![sequence.slot],
    };
    let layers_done = backend.layers_done();
    let before = layers_done.done();
    let ticket = backend.submit(&plan).unwrap();
    backend.collect(ticket, &mut StepOutput::default()).unwrap();
    assert_eq!((before % u64::from(LAYERS), layers_done.done() - before), (0, u64::from(LAYERS)));
}

/// Computes `[0, end)` while another thread copies each layer as soon as it is counted. Repeats that until the first layer was
/// copied before the last one was done.
fn computed_and_copied(backend: &mut CpuBackend, sequence: &Sequence, end: usize) -> Vec<Copy> {
    let (pool, layers_done) = (Arc::clone(backend.decoder.kv_memory()), backend.layers_done());
    let began = Instant::now();
    while began.elapsed() < PATIENCE {
        let unwritten = vec![vec![0xff; pool.shards()[0].layout.block_bytes()]; pool.shards().len()];
        for (layer, &page) in (0..LAYERS).flat_map(|layer| sequence.pages.iter().map(move |page| (layer, page))) {
            write(&pool, layer, page, &unwritten);
        }
        let before = layers_done.done();
        let watcher = thread::spawn({
            let (pool, pages, layers_done) = (Arc::clone(&pool), sequence.pages.clone(), layers_done.clone());
            move || {
                let mut in_time = false;
                let copies = (0..LAYERS).map(|layer| {
                    while layers_done.done() <= before + u64::from(layer) {
                        thread::yield_now();
                    }
                    let copy = copy(&pool, layer, &pages);
                    in_time |= layers_done.done() < before + u64::from(LAYERS);
                    copy
                });
                (copies.collect::<Vec<_>>(), in_time)
            }
        });
        compute(backend, sequence, 0..end);
        let (copies, in_time) = watcher.join().unwrap();
        for (layer, copied) in (0..).zip(&copies) {
            assert!(*copied == copy(&pool, layer, &sequence.pages), "layer {layer} changed after it was counted");
        }
        if in_time {
            return copies;
        }
    }
    panic!("in {PATIENCE:?} no copy was made while a step ran");
}

#[test]
fn pages_copied_layer_by_layer_are_the_real_ones() {
    for (dtype, kv_dtype, threads, tp) in [
        (Dtype::Bf16, KvDtype::Auto, 1, 1),
        (Dtype::F32, KvDtype::Auto, 3, 1),
        (Dtype::F32, KvDtype::Auto, 3, 2),
        (Dtype::Bf16, KvDtype::Auto, 1, 6),
        (Dtype::Bf16, KvDtype::Int8, 3, 2),
    ] {
        let weights = Arc::new(TinyModel::new(odd_spec(dtype)));
        let setup = Setup { threads, tp, kv_dtype, ..Setup::PLAIN };
        let (mut from, mut to) = (setup.backend(weights.clone()), setup.backend(weights.clone()));

        let sent = Sequence::new(0, 1, LEN, 131, 10..20);
        let copies = computed_and_copied(&mut from, &sent, SPLIT);
        let received = Sequence::new(0, 1, LEN, 131, 40..50);
        let pool = Arc::clone(to.decoder.kv_memory());
        for (layer, pages) in (0..).zip(&copies) {
            for (blocks, &page) in pages.iter().zip(&received.pages) {
                write(&pool, layer, page, blocks);
            }
        }
        compute(&mut to, &received, SPLIT..LEN);
        let hidden = to.hidden_of_last_step(0);

        let mut alone = Sequence::new(1, 1, LEN, 131, 60..70);
        run_alone(&mut to, &mut alone, LEN);
        assert!(hidden == to.hidden_of_last_step(0)[SPLIT * odd_spec(dtype).hidden..], "{dtype:?}: hidden states");
        for (page, (&received, &alone)) in received.pages.iter().zip(&alone.pages).enumerate().take(3) {
            let tokens = (LEN - page * 32).min(32);
            assert_eq!(to.page_digest(received, 0..2, tokens), to.page_digest(alone, 0..2, tokens), "page {page}");
        }
    }
}

/// A step whose batch is cut into halves counts each layer once, when it does not change any more.
#[test]
fn a_layer_is_final_when_all_rows_have_passed_it() {
    let mut backend = Setup { threads: 2, ..Setup::BOTH }.backend(Arc::new(TinyModel::new(block_spec())));
    let sequence = Sequence::new(0, 1, LEN, 131, 10..20).with_prompt(SPLIT);
    computed_and_copied(&mut backend, &sequence, LEN);
}
