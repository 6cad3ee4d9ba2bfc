//! Matmuls of [quantized weights](crate::weights::quant): by the origin of a token as bf16 or [as integers](mod@integers).

mod buffers;
mod choice;
mod integers;

pub(crate) use self::buffers::QuantBuffers;
pub(crate) use self::choice::{QuantMatmul, TokenMatmuls};
pub(crate) use self::integers::integers;
