//! The ways of serving that come with the router.

mod auto;
mod context_migration;
mod disagg;
mod hand_over;
mod kind;
mod least_loaded;
mod prefix_aware;
mod registry;
mod round_robin;
mod session_affinity;

pub use auto::Auto;
pub use context_migration::ContextMigration;
pub use disagg::Disagg;
pub use kind::{Parameter, PrefillUse, StrategyError, StrategyKind};
pub use least_loaded::LeastLoaded;
pub use prefix_aware::PrefixAware;
pub use registry::{STRATEGIES, strategy, strategy_kind};
pub use round_robin::RoundRobin;
pub use session_affinity::SessionAffinity;
