//! Requests arrive from the gateway; each is sent to an engine that a strategy picks from the fleet, and its events leave
//! as one exact stream, whatever dies on the way.
//!
//! ```text
//!   Dispatcher::generate ─▶ Relay ─▶ Roster (who is ready) ─▶ Router (who gets it) ─▶ Engine
//!                             ▲                                                        │
//!                client ◀─────┴── TokenLog: drops repeats, notices gaps ◀── events ────┘
//!                                 and is where the next attempt continues
//! ```

mod dispatcher;
mod fleet;
mod load;
mod relay;
mod retry;
mod roster;
mod runtime;
mod strategy;
mod token_log;

pub use dispatcher::{DispatchConfig, Dispatcher};
pub use fleet::{EngineId, EngineStatus, Fleet, Role};
pub use load::LoadGuard;
pub use retry::RetryPolicy;
pub use roster::{Candidates, Leg, Pick, Roster};
pub use runtime::{Runtime, TokioRuntime};
pub use strategy::{LeastLoaded, RoundRobin, Router};
