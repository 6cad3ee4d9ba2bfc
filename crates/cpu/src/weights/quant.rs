//! Quantized weights, which stay about as small as in their file: integers with a scale, and for some types a minimum, per
//! 32 of them; [superblocks](superblock) have scales per 16 and per 256.
//!
//! They are read [as bf16](floats), which suits tiles and many rows, or multiplied [as integers](mod@crate::matmul::quant), which
//! suits few rows, machines without tiles, and logits. Both read the same blocks.

pub(crate) mod block_format;
mod floats;
pub(crate) mod format;
pub(crate) mod group;
mod matrix;
pub(crate) mod packing;
pub(crate) mod superblock;

#[cfg(test)]
pub(crate) use self::floats::TRUNCATION_FACTOR;
pub(crate) use self::matrix::QuantizedMatrix;
