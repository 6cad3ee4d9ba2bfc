//! One or two rows times one panel, straight from the codes: nothing is expanded to memory.

#![allow(clippy::needless_range_loop, reason = "rows and pairs are numbers here; indexed loops unroll into registers")]

use super::cell::Supercell;
use super::{SMALL_GROUP, SUPER_DEPTH};
use crate::cpu::isa::Kernel;
use crate::cpu::lanes::Lanes;
use crate::cpu::pairs::{BLOCK_DEPTH, TILE_ROWS};

/// So far ahead supercells are asked for.
const PREFETCH_BYTES: usize = 4 << 10;
const PAIRS: usize = SMALL_GROUP / 2;
const BLOCK_PAIRS: usize = BLOCK_DEPTH / 2;

/// C\[`R` rows × 16\] = A · weights.
pub(super) struct FewRows<const R: usize, const BITS: usize> {
    pub(super) supercells: usize,
    /// `[block][row]` of A, widened.
    pub(super) x: *const [f32; BLOCK_DEPTH],
    pub(super) cells: *const u8,
    /// `[block][half][row of a tile]`: sums of 16 values of A; read if there are minima.
    pub(super) half_sums: *const f32,
    pub(super) c: *mut f32,
    pub(super) c_stride: usize,
}

/// Pointers in a product are good for the shapes it states: whoever makes one says why.
impl<const R: usize, const BITS: usize> Kernel for FewRows<R, BITS> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self) {
        let mut sums = [L::splat(0.0); R];
        for number in 0..self.supercells {
            // SAFETY: an existing one.
            let cell = unsafe { Supercell::<BITS>::at(self.cells.add(number * Supercell::<BITS>::BYTES)) };
            let mut dots = [L::splat(0.0); R];
            let mut offsets = [L::splat(0.0); R];
            for eighth in 0..SUPER_DEPTH / BLOCK_DEPTH {
                cell.prefetch::<L>(PREFETCH_BYTES, eighth);
                let block = number * SUPER_DEPTH / BLOCK_DEPTH + eighth;
                // SAFETY: the block's 32 k of each row.
                let x = unsafe { &*self.x.add(block * R).cast::<[[f32; BLOCK_DEPTH]; R]>() };
                let (mut even, mut odd) = ([L::splat(0.0); R], [L::splat(0.0); R]);
                for half in 0..2 {
                    let group = cell.group::<L>(2 * eighth + half);
                    for pair in 0..PAIRS {
                        let (weights, odd_weights) = (group.weights(2 * pair), group.weights(2 * pair + 1));
                        for r in 0..R {
                            even[r] = L::splat(x[r][half * PAIRS + pair]).fma(weights, even[r]);
                            odd[r] = L::splat(x[r][BLOCK_PAIRS + half * PAIRS + pair]).fma(odd_weights, odd[r]);
                        }
                    }
                    if Supercell::<BITS>::MINIMA {
                        let minimum = cell.small_minimum::<L>(2 * eighth + half);
                        for r in 0..R {
                            // SAFETY: sums of a whole tile of rows.
                            let sum = unsafe { *self.half_sums.add((2 * block + half) * TILE_ROWS + r) };
                            offsets[r] = minimum.fma(L::splat(sum), offsets[r]);
                        }
                    }
                }
                for r in 0..R {
                    dots[r] = dots[r].add(even[r].add(odd[r]));
                }
            }
            for r in 0..R {
                sums[r] = dots[r].fma(cell.scale(), sums[r]);
                if Supercell::<BITS>::MINIMA {
                    sums[r] = offsets[r].fma(cell.minimum(), sums[r]);
                }
            }
        }
        for r in 0..R {
            // SAFETY: a row of C.
            unsafe { sums[r].store(self.c.add(r * self.c_stride)) };
        }
    }
}
