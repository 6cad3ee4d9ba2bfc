//! What an engine may be told at start.

/// `Default` is what `baton engine` uses when nothing is said.
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
    /// Sequences that wait for pages; above it new requests are told to come back later.
    pub max_waiting: usize,
}

impl Default for EngineConfig {
    fn default() -> Self {
        Self { model: String::new(), prefix_cache: true, step_tokens: 512, max_running: 256, max_waiting: 1024 }
    }
}
