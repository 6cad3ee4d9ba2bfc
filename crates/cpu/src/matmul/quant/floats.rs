//! Products of bf16 with codes: these become bf16 where they are needed, and are multiplied as weights of bf16 are.
//!
//! ```text
//!   weight = (scale · code + minimum) · 1.0028, without the bits that a bf16 has no room for
//! ```
//!
//! Cutting off takes half of a last place from a weight, on average; the factor gives it back. What is left of it is nearly as
//! near to the file as rounding would be, and takes less time, of which expanding has little.

mod codes;
mod format;
mod panel;
#[cfg(test)]
mod tests;

#[cfg(test)]
pub(crate) use self::format::GIVEN_BACK;
pub(crate) use self::panel::AnyPanel;
