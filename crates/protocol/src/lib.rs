//! How routers talk to engines. Commands arrive from a router; step replies with token events leave for it.

mod command;
mod engine;

pub use command::{Command, StepReply};
pub use engine::{Engine, TokenStream};
