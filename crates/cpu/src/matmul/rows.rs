//! The left-hand side of a matmul, before it is packed.

use crate::batch::Wanted;
use crate::matmul::arithmetic::{Arithmetic, LeftOperand};
use crate::matmul::norm::RmsNorm;
use crate::memory::shared::Shared;

pub(crate) enum LeftRows<'a, E: Arithmetic> {
    /// Rows of the residual stream.
    Normed(Normed<'a>),
    /// Rows that an earlier phase has written for this matmul.
    Stored(LeftOperand<'a, E>),
}

/// Rows that are normed while they are packed: cheaper than a phase of its own, even where several members pack the same rows.
#[derive(Clone, Copy)]
pub(crate) struct Normed<'a> {
    /// No one writes it in the phase that packs these rows.
    pub(crate) x: Shared<'a, f32>,
    pub(crate) stride: usize,
    pub(crate) which: Which<'a>,
    pub(crate) norm: RmsNorm<'a>,
}

#[derive(Clone, Copy)]
pub(crate) enum Which<'a> {
    /// Rows 0, 1, ….
    First(usize),
    Listed(&'a [Wanted]),
}

impl<E: Arithmetic> LeftRows<'_, E> {
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Normed(rows) => match rows.which {
                Which::First(rows) => rows,
                Which::Listed(wanted) => wanted.len(),
            },
            Self::Stored(rows) => rows.rows(),
        }
    }
}

impl Normed<'_> {
    #[inline(always)]
    pub(crate) fn row(&self, i: usize) -> &[f32] {
        let row = match self.which {
            Which::First(_) => i,
            Which::Listed(wanted) => wanted[i].row,
        };
        // SAFETY: no one writes the rows in this phase.
        unsafe { self.x.slice(row * self.stride..(row + 1) * self.stride) }
    }
}
