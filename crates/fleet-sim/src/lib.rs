//! Fleets of engines under virtual time, for comparing strategies without hardware: the real router over the real engine core,
//! with a cost model in place of kernels. A [`Run`] and a [`Workload`] arrive; [`Records`] and a [`Summary`] leave. The same
//! seed gives the same result, bit for bit.
//!
//! ```text
//!   workload ─▶ client ─▶ Dispatcher, Fleet, strategy ─▶ engine (trait Engine) ═ latency ═▶ process: Stepper, Scheduler, kv
//!                 │                                                                           │ port       │ backend
//!                 ▼                                                                           ▼            ▼
//!               record ─▶ summary ─▶ table, page                                            fabric       cost: how long
//! ```
//! Nothing goes wrong here, and no KV exists: what happens when engines die, and whether bytes are right, is what `crates/sim`
//! is for.

mod backend;
mod choice;
mod client;
mod clock;
mod compare;
mod cost;
mod engine;
mod error;
mod event;
mod executor;
mod fabric;
mod layout;
mod options;
mod port;
mod preset;
mod process;
mod progress;
mod record;
mod report;
mod run;
mod scenario;
mod simulate;
mod summary;
mod workload;
mod world;

pub use cost::{CostModel, StepSize};
pub use error::SimulateError;
pub use layout::Layout;
pub use options::SimulateOptions;
pub use preset::{PRESETS, Preset, Slo, preset};
pub use record::{Record, Records};
pub use run::{Outcome, Run, SimulationError};
pub use simulate::simulate;
pub use summary::{Stats, Summary};
pub use workload::{Workload, WorkloadKind};
