//! The ways of serving that come with the router.

mod disagg;
mod least_loaded;
mod round_robin;

pub use disagg::Disagg;
pub use least_loaded::LeastLoaded;
pub use round_robin::RoundRobin;
