//! Models and devices to simulate, by name.

use crate::cost::CostModel;

/// One kind of engine, and what is expected of a fleet of them.
#[derive(Clone, Debug)]
pub struct Preset {
    pub name: &'static str,
    pub about: &'static str,
    pub cost: CostModel,
    /// Tokens of a step, at most.
    pub step_tokens: usize,
    /// Sequences that an engine runs at once.
    pub max_running: usize,
    /// Room for KV in an engine, in tokens.
    pub kv_tokens: usize,
    /// Longest sequence.
    pub context_tokens: usize,
    pub layers: u32,
    pub kv_bytes_per_token: u64,
    /// Of an engine's link to the others, in each direction.
    pub bytes_per_s: f64,
    /// From router to engine, back, and between engines.
    pub latency_us: u64,
    pub slo: Slo,
}

/// A request that meets both counts as goodput.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Slo {
    pub ttft_ms: f64,
    pub tpot_ms: f64,
}

pub static PRESETS: [Preset; 2] = [
    Preset {
        name: "h100-8b",
        about: "Llama 8B in bf16 on one H100",
        cost: CostModel {
            step_us: 6000.0,
            prefill_token_us: 36.0,
            prefill_context_ns: 1.3,
            decode_seq_us: 20.0,
            decode_context_ns: 40.0,
        },
        step_tokens: 2048,
        max_running: 256,
        kv_tokens: 400_000,
        context_tokens: 131_072,
        layers: 32,
        kv_bytes_per_token: 128 << 10,
        bytes_per_s: 50e9,
        latency_us: 100,
        slo: Slo { ttft_ms: 1000.0, tpot_ms: 25.0 },
    },
    Preset {
        name: "mlc-70b-tp4",
        about: "Llama 70B in FP8 on four H100, as in the published figures of MLC's microserving",
        cost: CostModel {
            step_us: 12_000.0,
            prefill_token_us: 54.0,
            prefill_context_ns: 1.6,
            decode_seq_us: 150.0,
            decode_context_ns: 27.0,
        },
        step_tokens: 2048,
        max_running: 256,
        kv_tokens: 600_000,
        context_tokens: 131_072,
        layers: 80,
        kv_bytes_per_token: 320 << 10,
        bytes_per_s: 200e9,
        latency_us: 100,
        slo: Slo { ttft_ms: 2000.0, tpot_ms: 30.0 },
    },
];

pub fn preset(name: &str) -> Option<&'static Preset> {
    PRESETS.iter().find(|preset| preset.name == name)
}
