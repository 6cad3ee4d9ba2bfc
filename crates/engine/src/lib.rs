//! One engine. Commands arrive from sessions (a router's connection, or a caller in the same process); step replies with
//! token events leave for them. In between one thread runs steps: schedule → submit → collect → emit.
//!
//! [`Scheduler`] decides what a step computes and is pure; [`Stepper`] puts it between sessions and backend, still without a
//! clock; the step loop drives that with real time. KV of other engines arrives, and KV for them leaves, through [`HandOff`].

mod cache_feed;
mod config;
mod error;
mod fabric;
mod handle;
mod handoff;
mod heartbeat;
mod inbox;
mod local;
mod masks;
mod outbox;
mod request;
mod scheduler;
mod sequence;
mod step_loop;
mod stepper;

pub use config::EngineConfig;
pub use error::EngineError;
pub use fabric::Fabric;
pub use handle::EngineHandle;
pub use handoff::{Computed, ExportId, Exported, HandOff, HandedPrompt, NoHandOff, PageOffer};
pub use heartbeat::ProgressWatch;
pub use local::LocalEngine;
pub use masks::{MaskMaker, MaskSource};
pub use outbox::Outbox;
pub use scheduler::{Scheduler, SessionEvent};
pub use stepper::Stepper;
