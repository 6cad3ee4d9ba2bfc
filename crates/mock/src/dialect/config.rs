//! What a dialect's engine is: whose protocol it speaks, and which leg it serves.

use crate::config::MockConfig;

/// The project whose HTTP protocol is imitated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    Vllm,
    Sglang,
}

/// The leg of a request that an engine serves. Without a role vLLM's serves both legs, SGLang's serves whole requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DialectRole {
    Prefill,
    Decode,
}

pub struct DialectConfig {
    pub dialect: Dialect,
    pub role: Option<DialectRole>,
    /// The model name in requests.
    pub model: String,
    pub mock: MockConfig,
    /// Port of a prefill engine's bootstrap server in SGLang's dialect; 0 takes a free one.
    pub bootstrap_port: u16,
}

impl DialectRole {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Prefill => "prefill",
            Self::Decode => "decode",
        }
    }
}
