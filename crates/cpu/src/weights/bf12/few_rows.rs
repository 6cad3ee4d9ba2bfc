//! A few rows times tiles that are expanded in registers: no tile is stored only to be loaded again.

#![allow(clippy::needless_range_loop, reason = "rows are numbers here; indexed loops unroll into registers")]

use super::{Compact, Panel};
use crate::simd::vector::Lanes;

/// More rows take less time with tiles that are stored.
pub(crate) const MOST_FROM_TILES: usize = 3;

/// Whether [`Compact::multiply`] is for so many rows on this machine: it needs vectors of 64 bytes.
#[inline(always)]
pub(crate) fn is_read_in_registers<L: Lanes>(rows: usize) -> bool {
    cfg!(target_arch = "x86_64") && L::TABLE_BYTES == 64 && rows <= MOST_FROM_TILES
}

/// Rows times a panel; pointers are good for all of its blocks: whoever makes one says why.
#[cfg_attr(not(target_arch = "x86_64"), allow(dead_code, reason = "vectors of 64 bytes are x86's"))]
struct Product<'a> {
    panel: &'a Panel,
    tiles: *const u8,
    blocks: usize,
    x: *const f32,
    c: *mut f32,
    c_stride: usize,
}

impl Compact {
    /// `x` has rows as [widened](crate::matmul::bf16) ones lie, all blocks of them.
    ///
    /// # Safety
    /// So many rows are readable at `x`, and 16 sums of each writable at `c`, rows `c_stride` apart.
    #[inline(always)]
    pub(crate) unsafe fn multiply<L: Lanes>(
        &self,
        panel: usize,
        rows: usize,
        x: *const f32,
        c: *mut f32,
        c_stride: usize,
    ) {
        assert!(is_read_in_registers::<L>(rows) && rows > 0);
        let tiles = self.tile(panel, 0);
        let packed = self.panels[panel].get();
        assert!(packed.is_some(), "panel {panel} is read before it is packed");
        let Some(panel) = packed else { return };
        let product = Product { panel, tiles, blocks: self.blocks, x, c, c_stride };
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the caller's promise; kernels over these lanes run where their instructions are.
        unsafe {
            match rows {
                1 => product.chains::<1>(),
                2 => product.chains::<2>(),
                _ => product.chains::<3>(),
            }
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = product;
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::*;

    use super::super::expand::x86::{QUAD, expand_64, rows_64};
    use super::super::{LINE, TILE_BYTES};
    use super::Product;
    use crate::simd::vector::LANES;
    use crate::weights::layout::{BLOCK_DEPTH, TILE};

    /// So far ahead tiles are asked for: of this panel, and then of the next one, which follows it.
    const AHEAD_BYTES: usize = 8 * TILE_BYTES;
    /// Of a block: four pairs of k each.
    const QUADS: usize = BLOCK_DEPTH / 2 / QUAD;

    #[repr(align(64))]
    struct Tile([u16; TILE]);

    /// Both chains of each row in a block.
    struct Chains<const R: usize> {
        even: [__m512; R],
        odd: [__m512; R],
    }

    impl Product<'_> {
        /// # Safety
        /// Pointers are good, and the machine has AVX-512 with byte instructions.
        #[target_feature(enable = "avx512f,avx512bw")]
        pub(super) unsafe fn chains<const R: usize>(&self) {
            // SAFETY: the caller's promise.
            unsafe {
                let by_code = &self.panel.high_bytes.by_code;
                let table = _mm512_broadcast_i32x4(_mm_loadu_si128(by_code.as_ptr().cast()));
                let mut exceptions = &*self.panel.exceptions;
                let mut mended = Tile([0; TILE]);
                let mut sums = [_mm512_setzero_ps(); R];
                for block in 0..self.blocks {
                    let tile = self.tiles.add(block * TILE_BYTES);
                    for line in (0..TILE_BYTES).step_by(LINE) {
                        _mm_prefetch::<_MM_HINT_T0>(tile.wrapping_add(AHEAD_BYTES + line).cast());
                    }
                    let x = self.x.add(block * R * BLOCK_DEPTH);
                    let mut chains = Chains { even: [_mm512_setzero_ps(); R], odd: [_mm512_setzero_ps(); R] };
                    let of_block = exceptions.iter().take_while(|next| next.at < ((block + 1) * TILE) as u32).count();
                    if of_block == 0 {
                        for quad in 0..QUADS {
                            chains.add(rows_64(tile, table, quad), quad, x);
                        }
                    } else {
                        expand_64(tile, by_code, mended.0.as_mut_ptr());
                        let (now, others) = exceptions.split_at(of_block);
                        for exception in now {
                            mended.0[exception.at as usize % TILE] = exception.bits;
                        }
                        exceptions = others;
                        for quad in 0..QUADS {
                            let rows = std::array::from_fn(|row| {
                                let words = mended.0.as_ptr().add((quad * QUAD + row) * 2 * LANES);
                                _mm512_load_si512(words.cast())
                            });
                            chains.add(rows, quad, x);
                        }
                    }
                    for r in 0..R {
                        sums[r] = _mm512_add_ps(sums[r], _mm512_add_ps(chains.even[r], chains.odd[r]));
                    }
                }
                for r in 0..R {
                    _mm512_storeu_ps(self.c.add(r * self.c_stride), sums[r]);
                }
            }
        }
    }

    impl<const R: usize> Chains<R> {
        /// # Safety
        /// Rows of a block are readable at `x`, and the machine has AVX-512.
        #[inline]
        #[target_feature(enable = "avx512f,avx512bw")]
        unsafe fn add(&mut self, words: [__m512i; QUAD], quad: usize, x: *const f32) {
            let upper = _mm512_set1_epi32(0xffff_0000_u32 as i32);
            for row in 0..QUAD {
                let even = _mm512_castsi512_ps(_mm512_slli_epi32::<16>(words[row]));
                let odd = _mm512_castsi512_ps(_mm512_and_si512(words[row], upper));
                for r in 0..R {
                    // SAFETY: the caller's promise.
                    let (x_even, x_odd) = unsafe {
                        let x = x.add(r * BLOCK_DEPTH + quad * QUAD + row);
                        (_mm512_set1_ps(*x), _mm512_set1_ps(*x.add(BLOCK_DEPTH / 2)))
                    };
                    self.even[r] = _mm512_fmadd_ps(x_even, even, self.even[r]);
                    self.odd[r] = _mm512_fmadd_ps(x_odd, odd, self.odd[r]);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use half::bf16;

    use super::super::tests::weight;
    use super::*;
    use crate::matmul::bf16::widen;
    use crate::simd::isa::Isa;
    use crate::simd::vector::{Kernel, LANES};
    use crate::weights::chunks::Chunks;
    use crate::weights::layout::{BLOCK_DEPTH, TILE, tile_index};

    const BLOCKS: usize = 9;
    const DEPTH: usize = BLOCKS * BLOCK_DEPTH;
    /// Of which the last one belongs to the panel beside it.
    const C_STRIDE: usize = 2 * LANES;

    struct Run<'a>(&'a Compact, usize, usize, &'a [bf16], &'a mut [f32]);

    impl Kernel for Run<'_> {
        type Output = bool;

        #[inline(always)]
        fn run<L: Lanes>(self) -> bool {
            let Self(compact, panel, rows, left, c) = self;
            if !is_read_in_registers::<L>(rows) {
                return false;
            }
            let mut x = vec![f32::NAN; rows * DEPTH];
            // SAFETY: rows of one tile and all blocks of them, and sums of as many.
            unsafe {
                widen::<L>(left.as_ptr(), rows, &mut x);
                compact.multiply::<L>(panel, rows, x.as_ptr(), c.as_mut_ptr(), C_STRIDE);
            }
            true
        }
    }

    #[test]
    fn sums_have_the_order_of_tiles_with_exceptions_and_without() {
        let mut left = vec![bf16::NAN; BLOCKS * TILE];
        let value = |row: usize, k: usize| weight(row * DEPTH + k + 7, false);
        for (row, k) in (0..MOST_FROM_TILES).flat_map(|row| (0..DEPTH).map(move |k| (row, k))) {
            left[tile_index(row, k, BLOCKS)] = value(row, k);
        }
        // None, a few in some tiles, many in all of them.
        for (panel, every) in [(0, usize::MAX), (1, 700), (1, 5)] {
            let weights: Vec<bf16> = (0..BLOCKS * TILE)
                .map(|i| match every {
                    usize::MAX => bf16::from_f32(0.5 + (i % 97) as f32 / 128.0),
                    _ if i % every == every - 1 => bf16::from_f32(3e7),
                    _ => weight(i + 100_003, false),
                })
                .collect();
            let compact = Compact::new(&mut Chunks::default(), 2, BLOCKS).unwrap();
            compact.pack(panel, &weights);
            let exceptions = compact.bytes() - 2 * BLOCKS * super::super::TILE_BYTES;
            assert_eq!(exceptions == 0, every == usize::MAX);
            for (isa, rows) in
                Isa::available().into_iter().flat_map(|isa| (1..=MOST_FROM_TILES).map(move |rows| (isa, rows)))
            {
                let mut c = [7.0_f32; MOST_FROM_TILES * C_STRIDE];
                let is_run = isa.run(Run(&compact, panel, rows, &left, &mut c));
                assert_eq!(is_run, isa.has_avx512());
                if !is_run {
                    continue;
                }
                for (i, got) in c.into_iter().enumerate() {
                    let (row, column) = (i / C_STRIDE, i % C_STRIDE);
                    let of_pair = |block: usize, pair: usize, odd: usize| {
                        let weight = weights[block * TILE + (pair * LANES + column) * 2 + odd].to_f32();
                        (value(row, block * BLOCK_DEPTH + pair * 2 + odd).to_f32(), weight)
                    };
                    let expected = if row < rows && column < LANES {
                        (0..BLOCKS).fold(0.0_f32, |sum, block| {
                            let chain = |odd: usize| {
                                (0..BLOCK_DEPTH / 2).fold(0.0_f32, |sum, pair| {
                                    let (x, weight) = of_pair(block, pair, odd);
                                    x.mul_add(weight, sum)
                                })
                            };
                            sum + (chain(0) + chain(1))
                        })
                    } else {
                        7.0
                    };
                    assert_eq!(
                        got.to_bits(),
                        expected.to_bits(),
                        "{isa}, {rows} rows, every {every}: ({row}, {column})"
                    );
                }
            }
        }
    }
}
