//! Invariant: hidden states and KV are the same bits however a sequence is computed.

use std::sync::Arc;

use baton_core::{Guarantee, PageId};
use baton_model::{DecoderSpec, Dtype};

use super::bundled::storyteller;
use super::runner::{Sequence, Setup, admit, distributions, run_alone, step};
use super::tiny::{TinyModel, block_spec, deep_specs, odd_spec, wide_group_spec};
use crate::weights::{Phase, Weights};
use crate::{CpuBackend, Isa, KvDtype, Products, StorageDtype, WeightForm};
use baton_backend::Backend;

const LEN: usize = 300;

fn specs() -> Vec<(&'static str, DecoderSpec, Setup)> {
    vec![
        ("odd bf16", odd_spec(Dtype::Bf16), Setup::PLAIN),
        ("odd f32", odd_spec(Dtype::F32), Setup::PLAIN),
        ("odd bf16, int8 KV", odd_spec(Dtype::Bf16), Setup::INT8_KV),
        ("wide group bf16", wide_group_spec(Dtype::Bf16), Setup::PLAIN),
        ("wide group f32", wide_group_spec(Dtype::F32), Setup::PLAIN),
        ("blocks", block_spec(), Setup::PLAIN),
        ("blocks, int8 KV", block_spec(), Setup::INT8_KV),
        ("blocks, integers", block_spec(), Setup::INTEGER),
        ("blocks, both", block_spec(), Setup::BOTH),
    ]
}

/// Every way to compute a sequence of `len` tokens must give what one prefill on one thread gives.
pub(super) fn check_all_ways(name: &str, weights: Arc<dyn Weights>, plain: Setup, len: usize, portable: bool) {
    let (vocab, layers) = (weights.spec().vocab, weights.spec().layers);
    let of_prompt = |slot, pages: Vec<u32>| Sequence::new(slot, 1, len, vocab, pages.into_iter());
    let sequence = |slot, pages| of_prompt(slot, pages).with_prompt(plain.prompt_of(len));
    // Scattered, and each sequence has its own.
    let scattered = |which: u32| (0..12).map(|page| (page + 12 * which) * 37 % 128).collect::<Vec<u32>>();
    let mut backend = plain.backend(Arc::clone(&weights));
    let mut whole = sequence(0, (0..64).collect());
    run_alone(&mut backend, &mut whole, len);
    let expected = whole.result(&backend, layers);
    // More rows of logits than are computed at a time.
    let expected_logits = distributions(&mut backend, &of_prompt(6, (64..128).collect()), vocab);
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
        // Few and many rows use different kernels for 12-bit weights.
        let (form, chunk) = match threads {
            1 => (WeightForm::Compact, 23),
            // The last item has a row or two.
            2 => (WeightForm::Plain, 129),
            _ => (WeightForm::Compact, 130),
        };
        let setup = Setup { threads, isa: Some(isa), weights: form, ..plain };
        let mut backend = setup.backend(Arc::clone(&weights));
        let mut other = sequence(0, (0..64).rev().collect());
        run_alone(&mut backend, &mut other, chunk);
        let how = format!("{threads} threads, {isa}, {form:?}, pages reversed");
        compare(&other, &backend, &how);
        let logits = distributions(&mut backend, &of_prompt(6, (64..128).collect()), vocab);
        assert!(logits == expected_logits, "{name}, {how}: logits");
    }
    let mut backend = Setup { threads: 2, weights: WeightForm::Compact, ..plain }.backend(Arc::clone(&weights));
    let mut batched = sequence(5, scattered(5));
    let other = |i: u32| {
        Sequence::new(i, 2 + i as usize, 290, vocab, scattered(i).into_iter()).with_prompt(plain.prompt_of(290))
    };
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
    let mut few = sequence(6, (64..128).collect());
    run_alone(&mut backend, &mut few, 3);
    compare(&few, &backend, "three at a time, 12 bits");
}

#[test]
fn however_it_is_computed() {
    for (name, spec, setup) in specs() {
        check_all_ways(name, Arc::new(TinyModel::new(spec)), setup, LEN, true);
    }
}

#[test]
fn however_deep_it_is() {
    for spec in deep_specs() {
        let name = format!("deep, {} × {}", spec.hidden, spec.ffn);
        // 129 rows at a time: stretches of K are short, and items wide.
        check_all_ways(&name, Arc::new(TinyModel::new(spec)), Setup::PLAIN, 150, true);
    }
    // Two stretches of K; then more blocks than are expanded at a time, also from the middle of a superblock on, and rows that are
    // not next to each other.
    for ffn in [1024, 2560] {
        let blocks = Arc::new(TinyModel::new(DecoderSpec { ffn, ..block_spec() }));
        check_all_ways(&format!("{ffn} deep blocks"), Arc::clone(&blocks) as _, Setup::PLAIN, 150, false);
        check_all_ways(&format!("{ffn} deep blocks, integers"), blocks, Setup::INTEGER, 60, true);
    }
}

/// Where threads would be idle, decoding sequences are split along their tokens: one of up to five blocks of 256, then two.
#[test]
fn split_among_threads() {
    for (name, spec, setup) in specs() {
        let weights: Arc<dyn Weights> = Arc::new(TinyModel::new(DecoderSpec { max_context: 2048, ..spec }));
        let (vocab, layers) = (weights.spec().vocab, weights.spec().layers);
        let results = [1, 5].map(|threads| {
            let mut backend = Setup { threads, ..setup }.backend(Arc::clone(&weights));
            let mut sequence = Sequence::new(0, 1, 1030, vocab, 0..64).with_prompt(setup.prompt_of(1030));
            for count in [250, 500, 255].into_iter().chain([1; 4]) {
                step(&mut backend, &mut [(&mut sequence, count)]);
            }
            let mut other = Sequence::new(1, 2, 520, vocab, 64..96).with_prompt(setup.prompt_of(520));
            for count in [500].into_iter().chain([1; 20]) {
                step(&mut backend, &mut [(&mut sequence, 1), (&mut other, count)]);
            }
            (sequence.result(&backend, layers), other.result(&backend, layers))
        });
        assert!(results[0] == results[1], "{name}");
    }
}

/// Pages hold what a former owner left in them, at worst NaN.
#[test]
fn stale_pages_do_not_show() {
    for (name, spec, setup) in specs() {
        let weights: Arc<dyn Weights> = Arc::new(TinyModel::new(spec));
        let (vocab, layers) = (weights.spec().vocab, weights.spec().layers);
        let results = [false, true].map(|poisoned| {
            let mut backend = setup.backend(Arc::clone(&weights));
            if poisoned {
                poison(&backend);
            }
            let mut sequence = Sequence::new(0, 1, 271, vocab, 0..64).with_prompt(setup.prompt_of(271));
            for count in [9, 244].into_iter().chain([1; 18]) {
                step(&mut backend, &mut [(&mut sequence, count)]);
            }
            sequence.result(&backend, layers)
        });
        assert!(results[0] == results[1], "{name}");
    }
}

/// Sets every KV value, or its scale, to NaN.
fn poison(backend: &CpuBackend) {
    let pool = backend.decoder.kv_memory();
    let shard = &pool.shards()[0];
    for layer in 0..pool.layout().layers {
        for page in 0..pool.pages() {
            // SAFETY: a whole block; the backend is idle.
            unsafe { shard.block(layer, PageId(page)).write_bytes(0xff, shard.layout.block_bytes()) };
        }
    }
}

/// Otherwise the tests above would compare plain weights with plain ones.
#[test]
fn compact_weights_are_compact() {
    let specs = specs().into_iter().map(|(_, spec, _)| spec).chain(deep_specs());
    let tiny =
        specs.filter(|spec| spec.dtype == Dtype::Bf16).map(|spec| Arc::new(TinyModel::new(spec)) as Arc<dyn Weights>);
    for weights in tiny.chain([storyteller() as Arc<dyn Weights>]) {
        let [plain, bf12] = [WeightForm::Plain, WeightForm::Compact].map(|form| {
            let backend = Setup { weights: form, ..Setup::PLAIN }.backend(Arc::clone(&weights));
            Phase::ALL.map(|phase| backend.weight_bytes(phase))
        });
        for (phase, (plain, bf12)) in Phase::ALL.into_iter().zip(plain.into_iter().zip(bf12)) {
            assert!(bf12 <= plain * 77 / 100, "{phase:?}: {bf12} bytes of {plain}");
        }
    }
}

#[test]
fn storage_is_part_of_the_numerics_id() {
    let weights: Arc<dyn Weights> = Arc::new(TinyModel::new(odd_spec(Dtype::Bf16)));
    let id = |setup: Setup| setup.backend(Arc::clone(&weights)).spec().numerics.id.clone();
    let plain = id(Setup::PLAIN);
    let bf16 = Setup { dtype: StorageDtype::Bf16, kv_dtype: KvDtype::Bf16, ..Setup::PLAIN };
    assert_eq!(plain, id(Setup { threads: 2, tp: 6, isa: Some(Isa::Portable), weights: WeightForm::Compact, ..bf16 }));
    let f32 = id(Setup { dtype: StorageDtype::F32, ..Setup::PLAIN });
    let int8 = Setup::INT8_KV;
    assert!(plain != f32 && plain != id(int8) && f32 != id(int8), "{plain}, {f32}, {}", id(int8));
    assert_eq!(id(int8), id(Setup { threads: 2, tp: 6, isa: Some(Isa::Portable), ..int8 }));
    // Nothing here is quantized.
    assert_eq!(id(Setup::INTEGER), plain);
}

#[test]
fn integer_matmuls_are_part_of_the_numerics_id() {
    let weights: Arc<dyn Weights> = Arc::new(TinyModel::new(block_spec()));
    let id = |setup: Setup| setup.backend(Arc::clone(&weights)).spec().numerics.id.clone();
    let (float, integer, both) = (id(Setup::PLAIN), id(Setup::INTEGER), id(Setup::BOTH));
    assert!(float != integer && float != both && integer != both, "{float}, {integer}, {both}");
    assert_eq!(integer, id(Setup { threads: 2, tp: 2, isa: Some(Isa::Portable), ..Setup::INTEGER }));
    let expected = if Isa::best().has_tiles() { both } else { integer };
    for isa in Isa::available() {
        assert_eq!(id(Setup { isa: Some(isa), products: Products::Auto, ..Setup::PLAIN }), expected, "{isa}");
    }
}

/// Numerics promise less where prompt and generated tokens are multiplied differently.
#[test]
fn generated_tokens_differ_where_matmuls_do() {
    for (spec, setup, expected) in [
        (block_spec(), Setup::BOTH, true),
        (block_spec(), Setup::PLAIN, false),
        (block_spec(), Setup::INTEGER, false),
        (odd_spec(Dtype::Bf16), Setup::BOTH, false),
    ] {
        let backend = setup.backend(Arc::new(TinyModel::new(spec)));
        assert_eq!(backend.spec().numerics.guarantee == Guarantee::ByOrigin, expected, "{:?}", setup.products);
    }
}

/// With both, a prompt's KV is that of floats, and the KV of what follows is that of integers after that prompt.
#[test]
fn prompts_are_floats_and_answers_integers() {
    const PROMPT: usize = 64;
    const END: usize = 90;
    let weights: Arc<dyn Weights> = Arc::new(TinyModel::new(block_spec()));
    let (vocab, layers) = (weights.spec().vocab, weights.spec().layers);
    let sequence = || Sequence::new(0, 1, END, vocab, 0..8).with_prompt(PROMPT);
    let [mut floats, mut integers, mut both] =
        [Setup::PLAIN, Setup::INTEGER, Setup::BOTH].map(|setup| setup.backend(Arc::clone(&weights)));

    let mut prompt = sequence();
    step(&mut floats, &mut [(&mut prompt, PROMPT)]);
    let (from, to) = (floats.decoder.kv_memory(), integers.decoder.kv_memory());
    let pages = (0..layers as u32).flat_map(|layer| prompt.pages[..PROMPT / 32].iter().map(move |page| (layer, *page)));
    for (layer, page) in pages {
        let (from, to) = (&from.shards()[0], &to.shards()[0]);
        // SAFETY: blocks of pools of the same layout; no step runs.
        unsafe { to.block(layer, page).copy_from(from.block(layer, page), from.layout.block_bytes()) };
    }
    let mut answer = sequence();
    answer.done = PROMPT;
    let rest = END - PROMPT;
    admit(&mut integers, &answer);
    step(&mut integers, &mut [(&mut answer, rest)]);

    let mut all = sequence();
    run_alone(&mut both, &mut all, END);
    assert_eq!(all.result(&both, layers), answer.result(&integers, layers));
    let mut of_integers = Setup::INTEGER.backend(Arc::clone(&weights));
    let mut whole = sequence();
    run_alone(&mut of_integers, &mut whole, END);
    assert_ne!(all.result(&both, layers).1, whole.result(&of_integers, layers).1, "prompts were computed in integers");
}
