use std::io;

use thiserror::Error;

/// Why a hand-off did not happen. None of these harms a stream: what was not verified is computed again.
#[derive(Debug, Error)]
pub enum FabricError {
    #[error("no connection to the receiver: {0}")]
    Connect(#[source] io::Error),
    #[error("the receiver's connection broke: {0}")]
    Broken(String),
    #[error("the receiver refused: {0}")]
    Refused(String),
    #[error("{what} differs: ours {ours}, theirs {theirs}")]
    Mismatch { what: &'static str, ours: String, theirs: String },
    #[error("too many hand-offs at once")]
    TooMany,
    #[error("shared memory: {0}")]
    Memory(#[source] io::Error),
    #[error("not a hand-off target: {0}")]
    BadTarget(String),
}
