//! Invariant: hidden states and KV are the same bits however a sequence is computed.

use std::sync::Arc;

use baton_core::PageId;
use baton_model::{DecoderSpec, Dtype};

use super::runner::{Sequence, Setup, run_alone, step};
use super::tiny::{TinyModel, block_spec, odd_spec, wide_group_spec};
use crate::cpu::weights::Weights;
use crate::{Backend, CpuBackend, Isa, StorageDtype};

const LEN: usize = 300;

fn specs() -> Vec<(&'static str, DecoderSpec)> {
    vec![
        ("odd bf16", odd_spec(Dtype::Bf16)),
        ("odd f32", odd_spec(Dtype::F32)),
        ("wide group bf16", wide_group_spec(Dtype::Bf16)),
        ("wide group f32", wide_group_spec(Dtype::F32)),
        ("blocks", block_spec()),
    ]
}

/// Every way to compute a sequence of `len` tokens must give what one prefill on one thread gives.
pub(super) fn check_all_ways(name: &str, weights: Arc<dyn Weights>, len: usize, portable: bool) {
    let (vocab, layers) = (weights.spec().vocab, weights.spec().layers);
    let sequence = |slot, pages: Vec<u32>| Sequence::new(slot, 1, len, vocab, pages.into_iter());
    // Scattered, and each sequence has its own.
    let scattered = |which: u32| (0..12).map(|page| (page + 12 * which) * 37 % 128).collect::<Vec<u32>>();
    let mut backend = Setup::PLAIN.backend(Arc::clone(&weights));
    let mut whole = sequence(0, (0..64).collect());
    run_alone(&mut backend, &mut whole, len);
    let expected = whole.result(&backend, layers);
    let compare = |got: &Sequence, backend: &CpuBackend, how: &str| {
        let result = got.result(backend, layers);
        assert_eq!(result.2, expected.2, "{name}, {how}: sampled");
        assert!(result.1 == expected.1, "{name}, {how}: KV");
        assert!(result.0 == expected.0, "{name}, {how}: hidden states");
    };
    for (slot, chunk) in [(1, 32), (2, 100), (3, 7), (4, 1)] {
        let mut chunked = sequence(slot, (64..128).collect());
        run_alone(&mut backend, &mut chunked, chunk);
        compare(&chunked, &backend, &format!("chunks of {chunk}"));
    }
    for (threads, isa) in
        [1, 2, 3].into_iter().flat_map(|threads| Isa::available().into_iter().map(move |isa| (threads, isa)))
    {
        if isa == Isa::Portable && (!portable || threads == 3) {
            continue;
        }
        let setup = Setup { threads, isa: Some(isa), ..Setup::PLAIN };
        let mut backend = setup.backend(Arc::clone(&weights));
        let mut other = sequence(0, (0..64).rev().collect());
        run_alone(&mut backend, &mut other, 100);
        compare(&other, &backend, &format!("{threads} threads, {isa}, pages reversed"));
    }
    let mut backend = Setup { threads: 2, ..Setup::PLAIN }.backend(Arc::clone(&weights));
    let mut batched = sequence(5, scattered(5));
    let other = |i: u32| Sequence::new(i, 2 + i as usize, 290, vocab, scattered(i).into_iter());
    let mut others: Vec<Sequence> = (0..4).map(other).collect();
    while batched.done < len {
        let round = batched.done;
        let mut parts = Vec::new();
        for (i, other) in others.iter_mut().enumerate() {
            let count = [1, 17, 5, 30][(i + round) % 4].min(other.tokens.len() - other.done);
            if count > 0 {
                parts.push((other, count));
            }
        }
        let count = [40, 1, 64, 3][round % 4].min(len - round);
        parts.insert(parts.len() / 2, (&mut batched, count));
        step(&mut backend, &mut parts);
    }
    compare(&batched, &backend, "in a batch");
}

#[test]
fn however_it_is_computed() {
    for (name, spec) in specs() {
        check_all_ways(name, Arc::new(TinyModel::new(spec)), LEN, true);
    }
}

/// With more threads than KV heads a decoding sequence is split along its tokens, here into up to four blocks of 256.
#[test]
fn split_among_threads() {
    for (name, spec) in specs() {
        let weights: Arc<dyn Weights> = Arc::new(TinyModel::new(DecoderSpec { max_context: 2048, ..spec }));
        let (vocab, layers) = (weights.spec().vocab, weights.spec().layers);
        let results = [1, 5].map(|threads| {
            let mut backend = Setup { threads, ..Setup::PLAIN }.backend(Arc::clone(&weights));
            let mut sequence = Sequence::new(0, 1, 1030, vocab, 0..64);
            for count in [250, 500, 255].into_iter().chain([1; 25]) {
                step(&mut backend, &mut [(&mut sequence, count)]);
            }
            sequence.result(&backend, layers)
        });
        assert!(results[0] == results[1], "{name}");
    }
}

/// Pages come with what a former owner left in them, at worst bits that are no number.
#[test]
fn stale_pages_do_not_show() {
    for (name, spec) in specs() {
        let weights: Arc<dyn Weights> = Arc::new(TinyModel::new(spec));
        let (vocab, layers) = (weights.spec().vocab, weights.spec().layers);
        let results = [false, true].map(|poisoned| {
            let mut backend = Setup::PLAIN.backend(Arc::clone(&weights));
            if poisoned {
                poison(&backend);
            }
            let mut sequence = Sequence::new(0, 1, 271, vocab, 0..64);
            for count in [9, 244].into_iter().chain([1; 18]) {
                step(&mut backend, &mut [(&mut sequence, count)]);
            }
            sequence.result(&backend, layers)
        });
        assert!(results[0] == results[1], "{name}");
    }
}

/// Every KV value becomes NaN.
fn poison(backend: &CpuBackend) {
    let pool = backend.kv_pool().unwrap();
    let shard = &pool.shards()[0];
    for layer in 0..pool.layout().layers {
        for page in 0..pool.pages() {
            // SAFETY: a whole block of a backend that does nothing now.
            unsafe { shard.block(layer, PageId(page)).write_bytes(0xff, shard.layout.block_bytes()) };
        }
    }
}

#[test]
fn storage_is_part_of_the_numerics_id() {
    let weights: Arc<dyn Weights> = Arc::new(TinyModel::new(odd_spec(Dtype::Bf16)));
    let id = |threads, tp, isa, dtype| {
        let backend = Setup { threads, tp, isa, dtype }.backend(Arc::clone(&weights));
        backend.spec().numerics_id.clone()
    };
    let plain = id(1, 1, None, StorageDtype::Auto);
    assert_eq!(plain, id(2, 6, Some(Isa::Portable), StorageDtype::Bf16));
    assert_ne!(plain, id(1, 1, None, StorageDtype::F32));
}
