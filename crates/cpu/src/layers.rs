//! The layers of a decoder, and the forward pass through all of them.

pub(crate) mod attention;
pub(crate) mod decoder;
pub(crate) mod rope;
