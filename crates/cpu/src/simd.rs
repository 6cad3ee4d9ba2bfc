//! Vectors and matrix tiles of every instruction set behind one type each, so that a kernel is written once.

#[cfg(target_arch = "x86_64")]
pub(crate) mod amx;
#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
pub(crate) mod flush;
pub(crate) mod isa;
pub(crate) mod math;
pub(crate) mod portable;
pub(crate) mod prefetch;
pub(crate) mod vector;
