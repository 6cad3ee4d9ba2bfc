//! Steps reuse their buffers: once a batch has run, decoding allocates nothing.

#![allow(unsafe_code, reason = "a global allocator that counts")]
#![allow(clippy::unwrap_used, reason = "tests: allow-unwrap-in-tests covers test functions only")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use baton_backend::{Backend, InputToken, SamplerSpec, Segment, SegmentOutput, SlotId, StepOutput, StepPlan};
use baton_core::{Choice, PAGE_TOKENS, PageId, SamplingParams, TokenId};
use baton_cpu::{CpuBackend, CpuOptions, KvDtype, Products, StorageDtype, WeightForm};
use baton_model::{DEFAULT_MODEL, Model, ModelSource};

struct Counting;

static ALLOCATIONS: AtomicUsize = AtomicUsize::new(0);

// SAFETY: all calls go to the system's allocator as they came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: passed on.
        unsafe { System.dealloc(pointer, layout) };
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const SEQUENCES: usize = 24;
const PROMPT_TOKENS: usize = 40;

fn add_segment(plan: &mut StepPlan, sequence: usize, first_position: usize, tokens: usize) {
    let first_token = plan.tokens.len();
    plan.tokens.extend((0..tokens).map(|i| match first_position + i {
        position if position < PROMPT_TOKENS => InputToken::Known(TokenId((sequence * 31 + position) as u32)),
        _ => InputToken::LastSampled,
    }));
    let slot = SlotId(sequence as u32);
    let given = first_position.div_ceil(PAGE_TOKENS);
    let new = given..(first_position + tokens).div_ceil(PAGE_TOKENS);
    plan.change_table(slot, given, new.map(|page| PageId((sequence * 2 + page) as u32)));
    plan.segments.push(Segment {
        slot,
        tokens: first_token..plan.tokens.len(),
        first_position,
        adapter: None,
        output: SegmentOutput { samples: 1, ..SegmentOutput::default() },
    });
}

#[test]
fn decoding_allocates_nothing() {
    for weights in [WeightForm::Plain, WeightForm::Compact] {
        check(weights);
    }
}

fn check(weights: WeightForm) {
    let model = Arc::new(Model::open(&ModelSource::resolve(DEFAULT_MODEL).unwrap()).unwrap());
    let options = CpuOptions {
        // Further threads may take part in later steps for the first time, and would grow their buffers then.
        threads: 1,
        tp: 1,
        dtype: StorageDtype::Auto,
        kv_dtype: KvDtype::Auto,
        weights,
        products: Products::Auto,
        kv_pages: 2 * SEQUENCES,
        max_step_tokens: SEQUENCES * PROMPT_TOKENS,
        max_slots: SEQUENCES,
        isa: None,
    };
    let mut backend = CpuBackend::load(model, options, &mut |_| {}).unwrap();
    let mut plan = StepPlan::default();
    for sequence in 0..SEQUENCES {
        let spec = SamplerSpec {
            params: SamplingParams { temperature: 1.0, top_p: 0.9, seed: 7, ..SamplingParams::greedy() },
            choice: Choice(0),
            prompt: Arc::from([TokenId(0); PROMPT_TOKENS]),
            outputs: Vec::new(),
            min_tokens: 0,
            stop_tokens: Vec::new(),
            logprobs: None,
        };
        plan.admitted.push((SlotId(sequence as u32), Arc::new(spec)));
        add_segment(&mut plan, sequence, 0, PROMPT_TOKENS);
    }
    let mut output = StepOutput::default();
    for position in PROMPT_TOKENS..PROMPT_TOKENS + 20 {
        let before = ALLOCATIONS.load(Ordering::Relaxed);
        let ticket = backend.submit(&plan).unwrap();
        backend.collect(ticket, &mut output).unwrap();
        let allocations = ALLOCATIONS.load(Ordering::Relaxed) - before;
        assert_eq!(output.samples.len(), SEQUENCES);
        // The first steps grow all buffers to their sizes.
        assert!(position < PROMPT_TOKENS + 5 || allocations == 0, "{allocations} at position {position}, {weights:?}");
        plan.admitted.clear();
        plan.segments.clear();
        plan.tokens.clear();
        plan.tables.clear();
        plan.pages.clear();
        (0..SEQUENCES).for_each(|sequence| add_segment(&mut plan, sequence, position, 1));
    }
}
