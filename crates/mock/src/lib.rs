//! Engines without a model. Requests arrive as step plans of the real scheduler ([`MockBackend`]) or over HTTP in another
//! project's dialect. Tokens leave at the speed and with the faults that a [`MockConfig`] sets, and are the same on every
//! mock, so that streams can be checked.
//!
//! Its KV is opaque, as a device's is. The fabric hands it over:
//!
//! ```
//! fn hand_over(backend: &baton_mock::MockBackend) -> std::io::Result<Vec<u64>> {
//!     let memory = baton_backend::Backend::kv_memory(backend).ok_or(std::io::ErrorKind::Unsupported)?;
//!     memory.sum(0, &[baton_core::PageId(0)])
//! }
//! ```
//!
//! But the host never reads it:
//!
//! ```compile_fail
//! fn read(backend: &baton_mock::MockBackend) -> std::io::Result<*mut u8> {
//!     let memory = baton_backend::Backend::kv_memory(backend).ok_or(std::io::ErrorKind::Unsupported)?;
//!     Ok(memory.shards()[0].block(0, baton_core::PageId(0)))
//! }
//! ```

mod backend;
mod config;
mod device;
mod dialect;
mod faults;
mod history;
mod kv;
mod pace;
mod slot;
mod vocabulary;

pub use backend::{MockBackend, MockSize};
pub use config::{FaultPlan, MockConfig, MockConfigError, MockShape, Speed};
pub use dialect::{Dialect, DialectConfig, DialectRole, DialectServer};
pub use vocabulary::MockVocabulary;
