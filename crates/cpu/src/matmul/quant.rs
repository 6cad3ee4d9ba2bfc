//! Quantized weights, which stay about as small as in their file: integers with a scale, and for some types a minimum, per
//! 32 of them; [superblocks](superblock) have scales per 16 and per 256.
//!
//! They are multiplied [as bf16](floats), which suits tiles and many rows, or [as integers](mod@integers), which suits few
//! rows, machines without tiles, and logits. Both read the same blocks.

mod block_format;
mod buffers;
mod choice;
mod floats;
mod format;
mod group;
mod integers;
mod matrix;
mod packing;
mod superblock;

pub(crate) use self::buffers::QuantBuffers;
pub(crate) use self::choice::{QuantMatmul, TokenMatmuls};
#[cfg(test)]
pub(crate) use self::floats::TRUNCATION_FACTOR;
pub(crate) use self::integers::integers;
pub(crate) use self::matrix::QuantizedMatrix;
