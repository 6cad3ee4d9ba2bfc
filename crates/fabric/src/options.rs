//! What both ends of an engine's fabric are configured with.

use crate::auth::PortKey;
use crate::port::PortLimits;

#[derive(Clone)]
pub struct FabricOptions {
    /// Weights, kernels, dtypes: only engines that agree on them hand KV over to each other.
    pub numerics_id: String,
    /// Without it everything goes by tcp.
    pub shm_allowed: bool,
    pub key: PortKey,
    pub limits: PortLimits,
}
