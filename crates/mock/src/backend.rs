//! A backend that computes nothing: it takes its time, keeps KV that shows what it was computed from, and samples tokens that
//! follow from those before them, so that every mock continues a stream as any other would have. Steps run on a thread of
//! their own.

use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;

use baton_backend::{Backend, BackendError, BackendSpec, StepOutput, StepPlan, Ticket};
use baton_core::{AdapterId, Guarantee, Numerics, PAGE_TOKENS, Pooling};
use baton_fabric::{KvMemory, LayerCounter};

use crate::config::MockConfig;
use crate::device::Device;
use crate::history::mix;
use crate::kv::{MockKv, layout};
use crate::vocabulary::MockVocabulary;

/// How large the engine around it is.
#[derive(Clone, Copy, Debug)]
pub struct MockSize {
    pub kv_pages: usize,
    pub step_tokens: usize,
    pub max_slots: usize,
    /// Tensor-parallel shards: all hold the one KV head there is.
    pub tp: u32,
}

/// Its thread ends when it is dropped, after the step that runs.
pub struct MockBackend {
    spec: BackendSpec,
    config: MockConfig,
    kv: Arc<MockKv>,
    layers_done: LayerCounter,
    plans: Sender<StepPlan>,
    outputs: Receiver<Result<StepOutput, BackendError>>,
    submitted: u64,
    collected: u64,
}

impl MockBackend {
    pub fn new(config: MockConfig, size: MockSize, vocabulary: Arc<MockVocabulary>) -> Result<Self, BackendError> {
        let kv = Arc::new(MockKv::new(&config.shape, size.kv_pages, size.tp)?);
        let layers_done = LayerCounter::default();
        // What the tokens of an answer depend on, besides the request.
        let digest = mix(vocabulary.digest(), config.shape.output_tokens.map_or(0, u64::from));
        let spec = BackendSpec {
            device: "mock".to_owned(),
            numerics: Numerics { id: format!("mock-{digest:016x}"), guarantee: Guarantee::ByToken },
            vocab_size: vocabulary.size() as usize,
            max_context_tokens: (config.shape.context_tokens as usize).min(size.kv_pages * PAGE_TOKENS),
            pages_total: size.kv_pages,
            max_step_tokens: size.step_tokens,
            max_slots: size.max_slots,
            steps_in_flight: config.shape.steps_in_flight,
            tokens_per_step: config.shape.tokens_per_step,
            batch_buckets: Vec::new(),
            poolings: vec![Pooling::Last, Pooling::Mean],
            adapters: (1..=config.shape.adapters).map(AdapterId).collect(),
            threads: 1,
        };
        let device = Device::new(config.clone(), size, vocabulary, Arc::clone(&kv), layers_done.clone());
        let (plans, submitted_plans) = mpsc::channel();
        let (done, outputs) = mpsc::channel();
        thread::Builder::new()
            .name("mock".to_owned())
            .spawn(move || device.run(&submitted_plans, &done))
            .map_err(|error| BackendError::Device(format!("cannot start the mock's thread: {error}")))?;
        Ok(Self { spec, config, kv, layers_done, plans, outputs, submitted: 0, collected: 0 })
    }

    /// KV memory of one page.
    pub fn page_bytes(config: &MockConfig) -> u64 {
        layout(&config.shape).page_bytes() as u64
    }

    /// The pace at which its KV leaves, for the fabric; `None` for as fast as it can.
    pub fn transfer_bytes_per_s(&self) -> Option<u64> {
        let per_token = self.config.speed.transfer_per_token;
        (!per_token.is_zero()).then(|| (self.kv.bytes_per_token() as f64 / per_token.as_secs_f64()).ceil() as u64)
    }
}

impl Backend for MockBackend {
    fn spec(&self) -> &BackendSpec {
        &self.spec
    }

    fn submit(&mut self, plan: &StepPlan) -> Result<Ticket, BackendError> {
        // When the thread has ended collecting returns why.
        let _ = self.plans.send(plan.clone());
        self.submitted += 1;
        Ok(Ticket::new(self.submitted))
    }

    fn collect(&mut self, ticket: Ticket, output: &mut StepOutput) -> Result<(), BackendError> {
        self.collected += 1;
        if ticket.step() != self.collected {
            return Err(BackendError::Contract("steps are collected in the order of their submission".to_owned()));
        }
        let ended = || BackendError::Device("the mock's thread has ended".to_owned());
        *output = self.outputs.recv().map_err(|_| ended())??;
        Ok(())
    }

    fn layers_done(&self) -> LayerCounter {
        self.layers_done.clone()
    }

    fn kv_memory(&self) -> Option<Arc<dyn KvMemory>> {
        Some(self.kv.memory())
    }
}
