//! Quantized weights as bf16: each is expanded where it is needed, and multiplied as weights of bf16 are.
//!
//! ```text
//!   weight = (scale · value + minimum) · 1.0028, truncated to bf16
//! ```
//!
//! Truncation takes half of a last place from a weight, on average; the factor makes up for it. That is nearly as exact as rounding,
//! and takes fewer instructions.

mod panel;
mod scaled;
#[cfg(test)]
mod tests;
mod unpack;

pub(crate) use self::panel::AnyPanel;
#[cfg(test)]
pub(crate) use self::scaled::TRUNCATION_FACTOR;
