//! Matrix products: rows of a step times [weights](crate::weights), which part of it is whose, and what becomes of the sums.
//!
//! ```text
//!   f32      one chain of fused multiply-adds over k
//!   bf16     on tiles, or in vectors in the same order
//!   quant    quantized weights: dequantized to bf16, or as integers
//! ```

pub(crate) mod arithmetic;
pub(crate) mod bf16;
pub(crate) mod f32;
pub(crate) mod gemm;
pub(crate) mod multiply;
pub(crate) mod norm;
pub(crate) mod quant;
pub(crate) mod rows;
