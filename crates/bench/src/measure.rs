//! Parts of Baton by themselves, beside the fastest that this machine can do: kernels and hand-offs. A shared machine changes its
//! speed from second to second, so a part and its ceiling are measured in turn, in the same round.

mod ceilings;
mod hand_offs;
mod norms;
mod random_layer;
mod steps;
mod threads;
mod work;

pub use self::ceilings::Ceilings;
pub(crate) use self::hand_offs::EnginePair;
pub(crate) use self::norms::Norms;
pub use self::steps::{LargestStep, StepTime, Steps};
pub use self::work::Cost;
