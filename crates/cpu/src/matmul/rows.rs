//! The left-hand side of a product, before it is packed.

use crate::batch::Wanted;
use crate::layers::norm::RmsNorm;
use crate::matmul::arithmetic::{Arithmetic, Waiting};
use crate::memory::shared::Shared;

pub(crate) enum Rows<'a, E: Arithmetic> {
    /// Of the residual stream.
    Normed(Normed<'a>),
    Waiting(Waiting<'a, E>),
}

/// Normed on the way: cheaper than a pass of its own, even where several members pack the same rows.
#[derive(Clone, Copy)]
pub(crate) struct Normed<'a> {
    /// Not written in the phase that packs them.
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

impl<E: Arithmetic> Rows<'_, E> {
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Normed(rows) => match rows.which {
                Which::First(rows) => rows,
                Which::Listed(wanted) => wanted.len(),
            },
            Self::Waiting(rows) => rows.rows(),
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
        // SAFETY: no thread writes them in this phase.
        unsafe { self.x.slice(row * self.stride..(row + 1) * self.stride) }
    }
}
