//! Engines without a model. Requests arrive as step plans of the real scheduler ([`MockBackend`]) or over HTTP in another
//! project's dialect. Tokens leave at the speed and with the faults that a [`MockConfig`] sets, and are the same on every
//! mock, so that streams can be checked.

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
