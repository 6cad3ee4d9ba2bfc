//! Quantized weights, which stay about as small as in their file: integer codes with a scale, and for some types a minimum, per
//! 32 of them; [superblocks](superblock) have scales per 16 and per 256.
//!
//! They are multiplied [as bf16](floats), or, mostly on machines without tiles, and for logits on all, [as whole
//! numbers](mod@integers).

mod buffers;
mod cells;
mod floats;
mod format;
mod group;
mod integers;
mod kept_rows;
mod superblock;

pub(crate) use self::buffers::QuantBuffers;
pub(crate) use self::cells::{Cells, CodeProducts};
#[cfg(test)]
pub(crate) use self::floats::GIVEN_BACK;
pub(crate) use self::floats::{CellReader, MOST_FROM_CODES, few_rows};
#[cfg(all(test, target_arch = "x86_64"))]
pub(crate) use self::integers::WITHOUT_VNNI;
pub(crate) use self::integers::integers;
