//! Requests arrive from the gateway; a strategy picks engines from the fleet for each and composes the calls to them, and
//! the events leave as one exact stream, whatever dies on the way.
//!
//! ```text
//!   Dispatcher::generate ─▶ Relay ─▶ Roster (who is ready) ─▶ Strategy (who does what) ─▶ Pick (the calls) ─▶ Engine
//!                             ▲                                                                               │
//!                client ◀─────┴── TokenLog: drops repeats, notices gaps ◀── Leg ◀── events ───────────────────┘
//!                                 and is where the next attempt continues
//! ```

mod counters;
mod decision;
mod dispatcher;
mod engine;
mod fleet;
mod heartbeat;
mod leg;
mod liveness;
mod load;
mod member;
mod pick;
mod prefix_index;
mod prompt_pages;
mod receivers;
mod relay;
mod retry;
mod roster;
mod runtime;
mod strategies;
mod strategy;
mod token_log;
mod watchdog;

pub use counters::{Resumed, RouterCounters};
pub use decision::{Decision, Expected, Explanation, Forecast, Learner, Observed, Placement, RouteHandle};
pub use dispatcher::{DispatchConfig, Dispatcher};
pub use engine::{EngineId, EngineState, EngineStatus, Role};
pub use fleet::{Fleet, NameTaken, NotThere};
pub use heartbeat::HeartbeatMonitor;
pub use leg::Leg;
pub use load::InFlight;
pub use pick::{Pick, Reserved, Sending};
pub use prefix_index::PrefixIndex;
pub use retry::RetryPolicy;
pub use roster::{Candidates, Roster};
pub use runtime::{Runtime, TokioRuntime};
pub use strategies::{
    Auto, ContextMigration, Disagg, LeastLoaded, Parameter, PrefillUse, PrefixAware, RoundRobin, STRATEGIES,
    SessionAffinity, StrategyError, StrategyKind, strategy, strategy_kind,
};
pub use strategy::{Parameters, Strategy, from_fn};
