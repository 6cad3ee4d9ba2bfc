//! Products of bf16 with codes: these become bf16 where they are needed, and are multiplied as weights of bf16 are.
//!
//! ```text
//!   weight = (scale · code + minimum) · 1.0028, without the bits that a bf16 has no room for
//! ```
//!
//! Cutting off takes half of a last place from a weight, on average; the factor gives it back. What is left of it is nearly as
//! near to the file as rounding would be, and takes less time, of which expanding has little.

mod codes;
mod expand;
mod few_rows;
mod format;
mod reader;
#[cfg(test)]
mod tests;

pub(crate) use self::few_rows::few_rows;
#[cfg(test)]
pub(crate) use self::format::GIVEN_BACK;
pub(crate) use self::reader::CellReader;

/// So many rows take less time when they are multiplied with codes as they are read.
pub(crate) const MOST_FROM_CODES: usize = 2;
/// So far ahead codes are asked for.
const PREFETCH_BYTES: usize = 4 << 10;
