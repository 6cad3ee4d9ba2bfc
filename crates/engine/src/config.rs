//! The options of an engine.

use std::time::Duration;

/// `Default` is what `baton engine` uses without options.
#[derive(Clone, Debug)]
pub struct EngineConfig {
    /// The name the engine announces.
    pub model: String,
    pub prefix_cache: bool,
    /// Tokens computed per step, decoding sequences and prefill chunks together. The backend's own limit caps it.
    pub step_tokens: usize,
    /// Sequences that hold pages at once. `step_tokens` and the backend's slots cap it: every decoding sequence has a row
    /// in every step.
    pub max_running: usize,
    /// Sequences that wait for pages; above it new requests are refused with a time to retry after.
    pub max_waiting: usize,
    /// A request that waits for another engine's KV computes the rest itself when nothing has arrived for this long.
    pub landing_timeout: Duration,
    /// A receiver that has confirmed nothing of a hand-off for this long after its last page was computed is given up.
    pub delivery_timeout: Duration,
}

impl Default for EngineConfig {
    fn default() -> Self {
        Self {
            model: String::new(),
            prefix_cache: true,
            step_tokens: 512,
            max_running: 256,
            max_waiting: 1024,
            landing_timeout: Duration::from_secs(10),
            delivery_timeout: Duration::from_secs(30),
        }
    }
}
