//! Invariant: hidden states, KV and logits are the same bits for every number of shards and of threads.

use std::sync::Arc;

use baton_core::ShardCounters;
use baton_fabric::HostShard;
use baton_model::{DecoderSpec, Dtype};

use super::bundled::storyteller;
use super::runner::{Sequence, Setup, distributions, run_alone, step};
use super::tiny::{TinyModel, block_spec, odd_spec, wide_group_spec};
use crate::weights::Weights;
use crate::{CpuBackend, CpuOptions, KvDtype, Products, StorageDtype, WeightForm};
use baton_backend::{Backend, BackendError};

/// Results of chunks, then of single tokens across the border of a block of 256, and the logits of a short prompt.
fn everything(setup: &Setup, weights: &Arc<dyn Weights>) -> impl PartialEq + use<> {
    let (vocab, layers) = (weights.spec().vocab, weights.spec().layers);
    let mut backend = setup.backend(Arc::clone(weights));
    // Where generated tokens are multiplied differently, the first chunk ends after the prompt.
    let mut sequence = Sequence::new(0, 1, 270, vocab, (0..32).rev()).with_prompt(setup.prompt_of(270));
    for count in [100, 150].into_iter().chain([1; 20]) {
        step(&mut backend, &mut [(&mut sequence, count)]);
    }
    check_replicas(&backend, &sequence);
    let short = Sequence::new(1, 2, 40, vocab, 64..70);
    (sequence.result(&backend, layers), distributions(&mut backend, &short, vocab))
}

/// Shards that hold the same KV head hold the same bytes.
fn check_replicas(backend: &CpuBackend, sequence: &Sequence) {
    let pool = backend.decoder.kv_memory();
    let block = |shard: &HostShard, layer, page| {
        // SAFETY: a block of the pool; no thread writes it now.
        unsafe { std::slice::from_raw_parts(shard.block(layer, page), shard.layout.block_bytes()) }.to_vec()
    };
    for neighbours in pool.shards().windows(2).filter(|pair| pair[0].layout.heads == pair[1].layout.heads) {
        for (layer, &page) in
            (0..pool.layout().layers).flat_map(|layer| sequence.pages.iter().map(move |page| (layer, page)))
        {
            let [left, right] = [0, 1].map(|which| block(&neighbours[which], layer, page));
            assert!(left == right, "layer {layer}, page {page}: heads {:?}", neighbours[0].layout.heads);
        }
    }
}

fn check(name: &str, weights: Arc<dyn Weights>, tps: &[usize], threads: &[usize]) {
    check_setup(name, weights, Setup::PLAIN, tps, threads);
}

fn check_setup(name: &str, weights: Arc<dyn Weights>, plain: Setup, tps: &[usize], threads: &[usize]) {
    let expected = everything(&plain, &weights);
    for &tp in tps {
        for &threads in threads {
            let got = everything(&Setup { threads, tp, weights: WeightForm::Compact, ..plain }, &weights);
            assert!(got == expected, "{name}: {tp} shards, {threads} threads");
        }
    }
}

#[test]
fn tiny_models() {
    for dtype in [Dtype::Bf16, Dtype::F32] {
        let many_kv_heads = DecoderSpec { heads: 8, kv_heads: 4, ..odd_spec(dtype) };
        // Fewer KV heads than shards, and fewer panels.
        check("odd", Arc::new(TinyModel::new(odd_spec(dtype))), &[2, 6], &[1, 2, 5]);
        check("many KV heads", Arc::new(TinyModel::new(many_kv_heads)), &[2, 4, 8], &[1, 3, 4]);
        check("wide group", Arc::new(TinyModel::new(wide_group_spec(dtype))), &[3, 30], &[1, 4]);
    }
    check("blocks", Arc::new(TinyModel::new(block_spec())), &[2, 4], &[1, 2]);
    check_setup("odd, int8 KV", Arc::new(TinyModel::new(odd_spec(Dtype::Bf16))), Setup::INT8_KV, &[2, 6], &[1, 5]);
    check_setup("blocks, int8 KV", Arc::new(TinyModel::new(block_spec())), Setup::INT8_KV, &[2, 4], &[2]);
    check_setup("blocks, integers", Arc::new(TinyModel::new(block_spec())), Setup::INTEGER, &[2, 4], &[1, 2]);
    check_setup("blocks, both", Arc::new(TinyModel::new(block_spec())), Setup::BOTH, &[2, 4], &[1, 2]);
    // With four shards k and v, of two types, share a panel.
    let small_heads = DecoderSpec { heads: 8, kv_heads: 4, head_dim: 8, ..block_spec() };
    for setup in [Setup::PLAIN, Setup::INTEGER, Setup::BOTH] {
        check_setup("small heads", Arc::new(TinyModel::new(small_heads.clone())), setup, &[2, 4], &[1]);
    }
}

#[test]
fn the_bundled_model() {
    check("storyteller-11m", storyteller(), &[2, 6], &[1, 2, 4]);
}

#[test]
fn traffic_between_shards_is_counted() {
    let spec = odd_spec(Dtype::F32);
    for (tp, expected) in [(1, [0, 0]), (2, [30, 30])] {
        let mut backend = Setup { tp, ..Setup::PLAIN }.backend(Arc::new(TinyModel::new(spec.clone())));
        let mut sequence = Sequence::new(0, 1, 50, spec.vocab, 0..4);
        run_alone(&mut backend, &mut sequence, 20);
        let mut shards = vec![ShardCounters { kv_bytes_sent: 5, ..ShardCounters::default() }; tp];
        backend.count_shards(&mut shards);
        // Panels of 37, 45 and 131 columns: 1 + 2, 1 + 2, 4 + 5. One row of logits, and in each of two layers what a head
        // attends to, o, gate · up, down.
        let [hidden, ffn, vocab] = [[16, 21], [16, 29], [64, 67]];
        for (shard, counters) in shards.iter().enumerate() {
            let row = 2 * (expected[shard] + 2 * hidden[shard] + ffn[shard]);
            let bytes = if tp == 1 { 0 } else { 4 * (50 * row + vocab[shard]) };
            assert_eq!((counters.gathered_bytes, counters.kv_bytes_sent), (bytes, 5), "shard {shard} of {tp}");
        }
    }
}

#[test]
fn heads_that_do_not_divide_are_a_load_error() {
    for (tp, message) in [
        (4, "tensor parallelism 4 does not fit this model: 6 query heads cannot be dealt out evenly to 4 shards"),
        (3, "tensor parallelism 3 does not fit this model: of 2 KV heads and 3 shards one must divide the other"),
    ] {
        let options = CpuOptions {
            threads: 1,
            tp,
            dtype: StorageDtype::Auto,
            kv_dtype: KvDtype::Auto,
            weights: WeightForm::Auto,
            products: Products::Auto,
            kv_pages: 16,
            max_step_tokens: 16,
            max_slots: 1,
            isa: None,
        };
        let error = CpuBackend::from_weights(storyteller(), options, &mut |_| {}).map(drop).unwrap_err();
        assert!(matches!(&error, BackendError::Load(text) if text == message), "{error}");
    }
}
