//! The ways of serving that come with the router.

mod disagg;
mod least_loaded;
mod prefix_aware;
mod round_robin;

pub use disagg::Disagg;
pub use least_loaded::LeastLoaded;
pub use prefix_aware::PrefixAware;
pub use round_robin::RoundRobin;
