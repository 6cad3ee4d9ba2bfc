//! Engines as child processes. A list of engines to run arrives from the command line; live engines leave into the
//! router's fleet, and stay there through crashes until the deployment is stopped.
//!
//! ```text
//!   launch ─▶ Spawner ─▶ EngineChild ── announces progress, then its address ──▶ connect ─▶ probe ─▶ Fleet
//!                            │ log lines, prefixed with its name ─▶ Screen
//!                            └─ dies ─▶ supervise: back off, start again
//! ```
//!
//! No child outlives its parent: children are spawned from one permanent thread and ask the kernel to be killed with it,
//! and they leave by themselves when the pipe on their standard input ends.

mod announcement;
mod backoff;
mod child;
mod error;
mod launch;
mod log_tail;
mod orphan;
mod probe;
mod screen;
mod shutdown;
mod spawner;
mod start;
mod supervise;

pub use announcement::Announcement;
pub use error::LaunchError;
pub use launch::{Deployment, EnginePlan, LaunchPlan, launch};
pub use orphan::exit_with_parent;
pub use screen::Screen;
pub use shutdown::{Shutdown, Stage};
