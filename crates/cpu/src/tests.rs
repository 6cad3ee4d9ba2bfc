//! Whole steps on tiny random models and on the bundled one: bit for bit against each other, and close to a plain f64
//! forward pass.

mod bundled;
mod contract;
mod exact;
mod key_scales;
mod layer_counter;
mod noise;
mod reference;
mod runner;
mod sharded;
pub(super) mod tiny;

pub(super) use self::noise::noise;
