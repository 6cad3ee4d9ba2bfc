//! Errors of a pull, with what the user can do about them.

use std::io;
use std::path::PathBuf;

use thiserror::Error;

#[derive(Debug, Error)]
pub enum HubError {
    #[error("\"{0}\" is not a model's name: write hf:org/repo or hf:org/repo:file")]
    BadName(String),
    #[error("{what} is not at {endpoint}")]
    NotFound { what: String, endpoint: String },
    /// The hub gives the same answer for a private repository and for one that does not exist.
    #[error("{endpoint} refuses access to {what}: it is private, gated, or does not exist")]
    NotAllowed { what: String, endpoint: String, with_token: bool },
    #[error("{endpoint} cannot be reached: {problem}")]
    Unreachable { endpoint: String, problem: String },
    #[error("{endpoint} answered a request for {what} with status {status}")]
    Refused { what: String, endpoint: String, status: u16 },
    #[error("{endpoint} does not answer like a Hugging Face hub: {problem}")]
    Unexpected { endpoint: String, problem: String },
    #[error("{repo} has several models: {}", .files.join(", "))]
    Ambiguous { repo: String, files: Vec<String> },
    #[error("{repo} has no .gguf file, and no config.json with .safetensors files")]
    NoModel { repo: String },
    #[error("{file} has the hash {got}, expected {expected}; the download was deleted")]
    Corrupt { file: String, expected: String, got: String },
    #[error("the transfer of {file} broke off {times} times in a row: {problem}")]
    Interrupted { file: String, times: u32, problem: String },
    #[error("{path}: no space left on the disk ({needed_bytes} bytes are needed)")]
    DiskFull { path: PathBuf, needed_bytes: u64 },
    #[error("{path}: {source}")]
    Disk { path: PathBuf, source: io::Error },
    #[error("no folder for models: set HF_HUB_CACHE, HF_HOME, XDG_CACHE_HOME or HOME")]
    NoCache,
    #[error("pip: {0}")]
    Package(String),
}

impl HubError {
    pub(crate) fn disk(path: impl Into<PathBuf>, needed_bytes: u64) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Self::DiskFull { path, needed_bytes },
            _ => Self::Disk { path, source },
        }
    }

    /// What the user can do.
    pub fn hint(&self) -> Option<String> {
        Some(match self {
            Self::NotAllowed { with_token: false, endpoint, .. } => {
                format!("if it exists, accept its terms at {endpoint} and set HF_TOKEN to a token of yours")
            }
            Self::NotAllowed { with_token: true, endpoint, .. } => {
                format!("does the account of HF_TOKEN have access? its terms are accepted at {endpoint}")
            }
            Self::Unreachable { problem, .. }
                if problem.contains("UnknownIssuer") || problem.contains("CA certificates") =>
            {
                "SSL_CERT_FILE names a file with the authorities to trust".to_owned()
            }
            Self::Unreachable { .. } => "is this machine online? HF_ENDPOINT names another server".to_owned(),
            Self::Ambiguous { repo, files } => {
                format!("choose one: baton pull hf:{repo}:{}", files.first().map_or("file", String::as_str))
            }
            Self::Interrupted { .. } => "run it again: it goes on where it stopped".to_owned(),
            Self::DiskFull { .. } => "HF_HUB_CACHE names another folder for models".to_owned(),
            Self::Corrupt { .. } => "run it again; if that does not help, the server has a damaged file".to_owned(),
            _ => return None,
        })
    }

    /// Whether the request itself cannot be met, as opposed to a failure on the way.
    pub fn is_users_fault(&self) -> bool {
        matches!(
            self,
            Self::BadName(_)
                | Self::NotFound { .. }
                | Self::NotAllowed { .. }
                | Self::Ambiguous { .. }
                | Self::NoModel { .. }
                | Self::NoCache
        )
    }
}
