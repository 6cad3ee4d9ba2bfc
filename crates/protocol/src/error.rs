//! Why a session could not be opened or has ended.

use std::io;

use baton_core::ServeError;
use thiserror::Error;

#[derive(Debug, Error)]
pub enum SessionError {
    #[error("connection failed: {0}")]
    Io(#[from] io::Error),
    /// The peer broke the wire format: nothing after it can be trusted.
    #[error("malformed frame: {0}")]
    Frame(#[from] FrameError),
    #[error("the peer speaks version {theirs} of the session protocol, this side speaks {ours}")]
    Version { ours: u8, theirs: u8 },
    /// The engine's own words.
    #[error("refused: {0}")]
    Refused(String),
    #[error("the engine at this address does not know the deployment's secret")]
    Impostor,
    #[error("no answer within {0} s")]
    TimedOut(u64),
    #[error("the peer closed the connection")]
    Closed,
}

impl From<SessionError> for ServeError {
    fn from(error: SessionError) -> Self {
        Self::engine(format!("engine session: {error}"))
    }
}

/// What is wrong with bytes that should have been a frame.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum FrameError {
    #[error("starts with {0:02x?}, not with a frame's magic")]
    Magic([u8; 4]),
    #[error("unknown kind {0}")]
    Kind(u8),
    #[error("reserved bytes are not zero")]
    Reserved,
    #[error("{part} of {len} bytes, at most {max} are allowed")]
    TooLong { part: &'static str, len: usize, max: usize },
    #[error("a {got} frame where a {wanted} frame must stand")]
    Unexpected { wanted: &'static str, got: &'static str },
    #[error("header does not decode: {0}")]
    Header(String),
    #[error("bulk part of {0} bytes is not a list of token ids")]
    Bulk(usize),
    #[error("ends after {got} of {wanted} bytes")]
    Truncated { got: usize, wanted: usize },
}
