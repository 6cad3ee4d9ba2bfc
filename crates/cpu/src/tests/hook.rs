//! What a hand-off relies on: a layer that was announced as final does not change any more, and its pages alone make
//! another backend go on as if it had computed them itself.

use std::sync::{Arc, Mutex};

use baton_core::PageId;
use baton_fabric::KvPool;
use baton_model::Dtype;

use super::runner::{Sequence, Setup, run_alone};
use super::tiny::{TinyModel, block_spec, odd_spec};
use crate::{CpuBackend, KvDtype};
use baton_backend::{Backend, InputToken, LayerHook, Segment, SegmentOutput, StepOutput, StepPlan, TableChange};

const LEN: usize = 90;
const SPLIT: usize = 75;
/// Of all models here.
const LAYERS: u64 = 2;

/// Of each shard.
fn blocks(pool: &KvPool, layer: u32, page: PageId) -> Vec<Vec<u8>> {
    let blocks = pool.shards().iter().map(|shard| {
        // SAFETY: a block of the pool; nobody writes it now.
        unsafe { std::slice::from_raw_parts(shard.block(layer, page), shard.layout.block_bytes()) }.to_vec()
    });
    blocks.collect()
}

fn compute(backend: &mut CpuBackend, sequence: &Sequence, tokens: std::ops::Range<usize>, on_layer: Option<LayerHook>) {
    let plan = StepPlan {
        admitted: vec![(sequence.slot, sequence.spec())],
        segments: vec![Segment {
            slot: sequence.slot,
            tokens: 0..tokens.len(),
            first_position: tokens.start,
            output: SegmentOutput { sample: false, prompt_logprobs: None },
        }],
        tokens: sequence.tokens[tokens].iter().map(|&token| InputToken::Known(token)).collect(),
        tables: vec![TableChange { slot: sequence.slot, first: 0, pages: 0..sequence.pages.len() }],
        pages: sequence.pages.clone(),
        released: vec![sequence.slot],
        on_layer,
    };
    let layers_done = backend.layers_done();
    let before = layers_done.done();
    let ticket = backend.submit(&plan).unwrap();
    backend.collect(ticket, &mut StepOutput::default()).unwrap();
    assert_eq!((before % LAYERS, layers_done.done() - before), (0, LAYERS));
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
        let copied = Arc::new(Mutex::new(Vec::new()));
        let (pool, pages, copies) = (from.kv_pool().unwrap(), sent.pages.clone(), copied.clone());
        let hook = LayerHook::new(move |layer| {
            let blocks: Vec<_> = pages.iter().map(|&page| blocks(&pool, layer, page)).collect();
            copies.lock().unwrap().push((layer, blocks));
        });
        compute(&mut from, &sent, 0..SPLIT, Some(hook));

        let received = Sequence::new(0, 1, LEN, 131, 40..50);
        let (from_pool, pool) = (from.kv_pool().unwrap(), to.kv_pool().unwrap());
        let copied = std::mem::take(&mut *copied.lock().unwrap());
        assert_eq!(copied.iter().map(|(layer, _)| *layer).collect::<Vec<_>>(), [0, 1]);
        for (layer, pages) in &copied {
            for ((bytes, sent), received) in pages.iter().zip(&sent.pages).zip(&received.pages) {
                assert!(*bytes == blocks(&from_pool, *layer, *sent), "layer {layer} changed after it was announced");
                for (shard, bytes) in pool.shards().iter().zip(bytes) {
                    // SAFETY: a block of the pool; no step runs.
                    unsafe { shard.block(*layer, *received).copy_from(bytes.as_ptr(), bytes.len()) };
                }
            }
        }
        compute(&mut to, &received, SPLIT..LEN, None);
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

/// A step whose batch is cut into halves announces each layer once, when it does not change any more.
#[test]
fn a_layer_is_final_when_all_rows_have_passed_it() {
    let mut backend = Setup { threads: 2, ..Setup::BOTH }.backend(Arc::new(TinyModel::new(block_spec())));
    let sequence = Sequence::new(0, 1, LEN, 131, 10..20).with_prompt(SPLIT);
    let announced = Arc::new(Mutex::new(Vec::new()));
    let (pool, pages) = (backend.kv_pool().unwrap(), sequence.pages.clone());
    let of_layer = move |layer| pages.iter().flat_map(|&page| blocks(&pool, layer, page)).collect::<Vec<_>>();
    let (log, look, layers_done) = (Arc::clone(&announced), of_layer.clone(), backend.layers_done());
    compute(
        &mut backend,
        &sequence,
        0..LEN,
        Some(LayerHook::new(move |layer| {
            assert_eq!(layers_done.done(), u64::from(layer) + 1);
            log.lock().unwrap().push((layer, look(layer)));
        })),
    );
    let announced = std::mem::take(&mut *announced.lock().unwrap());
    assert_eq!(announced.len(), 2);
    for (number, (layer, bytes)) in announced.into_iter().enumerate() {
        assert!(layer as usize == number && bytes == of_layer(layer), "layer {layer} changed after it was announced");
    }
}
