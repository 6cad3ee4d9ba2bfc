//! Memory: mapped regions, the buffers of a step, the pages of the KV cache.

pub(crate) mod kv;
pub(crate) mod region;
pub(crate) mod shared;
pub(crate) mod workspace;
