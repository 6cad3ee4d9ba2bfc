//! Weights that stay about as small as in their file: integer codes with a scale, and for some types a minimum, per 32 of them;
//! [superblocks](superblock) have scales per 16 and per 256.
//!
//! A panel of 16 columns is a chain of cells, one for each 32 k:
//!
//! ```text
//!   cell = codes of 16 columns × 32 k | 16 scales | 16 minima, if the type has them
//! ```
//!
//! Codes are integers below 2⁸, which bf16 holds exactly, so a cell's products go through the same units, in the same order,
//! as those of bf16 weights. Per output and cell:
//!
//! ```text
//!   dot = the 32 products of bf16(x) and codes, even k and odd k in chains of their own
//!   acc = dot · scale + acc
//!   acc = minimum · (sum of the 32 x) + acc
//! ```
//!
//! Machines without tiles may take these as [products of whole numbers](integers) instead.

mod blocks;
mod buffers;
mod cell;
mod cells;
mod expand;
#[cfg(target_arch = "x86_64")]
mod few_rows;
mod format;
mod group;
mod integers;
#[cfg(target_arch = "x86_64")]
mod many_rows;
mod multiply;
mod product;
mod row_sums;
mod superblock;

pub(crate) use self::buffers::QuantBuffers;
pub(crate) use self::cells::{Cells, CodeProducts};
#[cfg(target_arch = "x86_64")]
pub(crate) use self::integers::has_byte_products;
pub(crate) use self::multiply::multiply;
