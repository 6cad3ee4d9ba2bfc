//! Engines without a model. Requests arrive as at any other engine: as step plans from the real scheduler
//! ([`MockBackend`]), or over HTTP in another project's dialect. Tokens leave at the pace that a [`MockConfig`] sets, with
//! the errors and stalls it asks for, and are the same on every mock, so that streams can be checked.

mod backend;
mod config;
mod faults;
#[allow(dead_code, reason = "used by the HTTP dialects")]
mod history;
mod kv;
mod pace;
mod slot;
#[allow(dead_code, reason = "used by the HTTP dialects")]
mod vocabulary;

pub use backend::{MockBackend, MockSize};
pub use config::{FaultPlan, MockConfig, MockConfigError, Shape, Speed};
pub use vocabulary::Vocabulary;
