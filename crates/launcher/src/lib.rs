//! Engines as child processes, and engines that run already. A list of them arrives from the command line; engines that are ready
//! go to the router's fleet, and are restarted or connected to again until the deployment is stopped.
//!
//! ```text
//!   launch ─┬▶ Spawner ─▶ EngineChild ── announces progress, then its address ─┬▶ connect ─▶ probe ─▶ Fleet
//!           │                 │ log lines, prefixed with its name ─▶ Screen    │
//!           │                 └─ dies ─▶ supervise: back off, start again      │
//!           └▶ Attachment: an address ─────────────────────────────────────────┘
//!                             └─ lost ─▶ supervise: back off, connect again
//! ```
//!
//! No child outlives its parent: children are spawned from one permanent thread and ask the kernel to be killed with it,
//! and they leave by themselves when the pipe on their standard input ends.

mod announcement;
mod attach;
mod backoff;
mod child;
mod control;
mod descriptors;
mod endpoint;
mod error;
mod identity;
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
pub use attach::query_attached;
pub use control::EngineControl;
pub use descriptors::{connections_within, raise_descriptor_limit};
pub use endpoint::{Endpoint, Host, is_on_this_machine};
pub use error::LaunchError;
pub use identity::Identity;
pub use launch::{Deployment, EnginePlan, LaunchPlan, Origin, launch};
pub use orphan::exit_with_parent;
pub use screen::Screen;
pub use shutdown::{Shutdown, Stage, Stop};
