use super::*;
use crate::matmul::bf16::sizes::STREAM_BLOCKS;

use crate::simd::isa::Isa;
use crate::weights::Matrix;
use crate::weights::element::Element;
use crate::weights::layout::{BLOCK_DEPTH, tile_index};
use crate::weights::tile_reader::TileReader;

/// Wide in its exponents, some of them so small that products vanish.
fn value(i: usize) -> bf16 {
    let bits = (i as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    let exponent = if i.is_multiple_of(7) { 40 + bits % 30 } else { 115 + (bits >> 8) % 20 };
    bf16::from_bits((bits as u16 & 0x807f) | (exponent as u16) << 7)
}

fn flushed(x: f32) -> f32 {
    if x.is_subnormal() { 0_f32.copysign(x) } else { x }
}

fn definition(sum: f32, pairs: usize, a: impl Fn(usize) -> bf16, b: impl Fn(usize) -> bf16) -> f32 {
    let chain = |first: usize, odd: usize| {
        let k = (first..pairs.min(first + BLOCK_PAIRS)).map(|pair| 2 * pair + odd);
        k.fold(0.0, |sum, k| flushed(a(k).to_f32().mul_add(b(k).to_f32(), sum)))
    };
    let blocks = (0..pairs).step_by(BLOCK_PAIRS);
    blocks.fold(sum, |sum, first| flushed(sum + flushed(chain(first, 0) + chain(first, 1))))
}

fn check(rows: usize, panels: usize, pairs: usize, width: usize) {
    let blocks = pairs.div_ceil(BLOCK_PAIRS);
    // One tile more than is used: nothing beyond the rows may matter.
    let mut a = vec![bf16::NAN; 2 * blocks * TILE];
    for (row, k) in (0..rows).flat_map(|row| (0..2 * pairs).map(move |k| (row, k))) {
        a[tile_index(row, k, blocks)] = value(row * 1009 + k);
    }
    let b: Vec<bf16> = (0..2 * pairs * width).map(|i| value(i + 77)).collect();
    let c_stride = 2 * LANES;
    let start: Vec<f32> = (0..2 * TILE_ROWS * c_stride).map(|i| value(i * 3 + 1).to_f32()).collect();
    for (isa, resume) in Isa::available().into_iter().flat_map(|isa| [(isa, false), (isa, true)]) {
        let mut c = start.clone();
        isa.run(TileProduct {
            rows,
            panels,
            pairs,
            a: a.as_ptr(),
            a_tile_stride: blocks * TILE,
            b: b.as_ptr(),
            b_pair_stride: pair_stride(width),
            b_panel_stride: bf16::index(0, LANES, width),
            b_ahead: 0,
            streamed: [Streamed::Neither, Streamed::Left, Streamed::Right, Streamed::Both][rows % 4],
            c: c.as_mut_ptr(),
            c_stride,
            resume,
        });
        for (row, column) in (0..rows).flat_map(|row| (0..panels * LANES).map(move |column| (row, column))) {
            let first = if resume { start[row * c_stride + column] } else { 0.0 };
            let (a, b) = (|k| a[tile_index(row, k, blocks)], |k| b[bf16::index(k, column, width)]);
            let (got, expected) = (c[row * c_stride + column], definition(first, pairs, a, b));
            assert_eq!(got.to_bits(), expected.to_bits(), "{isa} {rows}×{panels}×{pairs} at ({row}, {column})");
        }
    }
}

/// Columns of a few panels, widened, and a block of rows.
struct WideBlock<'a> {
    product: BlockProduct,
    b: &'a [bf16],
    width: usize,
}

impl Kernel for WideBlock<'_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self) {
        let mut widened = Widened::new();
        for panel in 0..self.product.panels {
            let b = self.b[bf16::index(0, panel * LANES, self.width)..].as_ptr();
            // SAFETY: all of B's pairs; rows and sums are the test's.
            unsafe {
                widened.put_columns::<L, _>(panel, Plain::new(b, pair_stride(self.width), 0), self.product.pairs)
            };
        }
        // SAFETY: as above.
        unsafe { self.product.run::<L>(&mut widened) };
    }
}

#[test]
fn rows_meet_a_block_of_up_to_four_panels() {
    const ROWS: usize = TILE_ROWS + 1;
    let a: Vec<bf16> = (0..2 * TILE).map(|i| value(i * 3)).collect();
    for (panels, pairs, begins) in
        (1..=4).flat_map(|n| [(n, 5, false), (n, BLOCK_PAIRS, false), (n, BLOCK_PAIRS, true)])
    {
        let (width, c_stride) = (panels * LANES, (panels + 1) * LANES);
        let b: Vec<bf16> = (0..BLOCK_DEPTH * width).map(|i| value(i + 77)).collect();
        let start: Vec<f32> = (0..(ROWS + 1) * c_stride).map(|i| value(i * 3 + 1).to_f32()).collect();
        for (isa, rows) in Isa::available().into_iter().flat_map(|isa| (1..=ROWS).map(move |rows| (isa, rows))) {
            let mut c = start.clone();
            let (a_tile_stride, at) = (TILE, c.as_mut_ptr());
            let product = BlockProduct { rows, panels, pairs, a: a.as_ptr(), a_tile_stride, c: at, c_stride, begins };
            isa.run(WideBlock { product, b: &b, width });
            for (i, got) in c.iter().enumerate() {
                let (row, column) = (i / c_stride, i % c_stride);
                let expected = if row < rows && column < width {
                    let (a, b) = (|k| a[tile_index(row, k, 1)], |k| b[bf16::index(k, column, width)]);
                    definition(if begins { 0.0 } else { start[i] }, pairs, a, b)
                } else {
                    start[i]
                };
                assert_eq!(got.to_bits(), expected.to_bits(), "{isa} {rows}×{panels}×{pairs} at ({row}, {column})");
            }
        }
    }
}

struct ByBlocks<'a>(TileProduct, *mut bf16, TileReader<'a>);

impl Kernel for ByBlocks<'_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self) {
        // SAFETY: the test has made room.
        unsafe { self.0.stream::<L>(self.1, self.2) };
    }
}

#[test]
fn streamed_or_not_the_sums_are_the_same() {
    for (panels, blocks) in [(1, 1), (2, 4), (2, 5), (1, 6), (2, 11)] {
        // Of few exponents, so that they fit into 12 bits.
        let bits = |i: usize| value(i + 5).to_bits() & 0x85ff | 0x3800;
        let [weights, bf12] = [false, true].map(|is_bf12| Matrix::of_bits(panels, blocks * BLOCK_DEPTH, is_bf12, bits));
        assert!(weights.is_plain() && !bf12.is_plain());
        let a: Vec<bf16> = (0..2 * blocks * TILE).map(|i| value(i * 3 + 2)).collect();
        let isas = Isa::available().into_iter().filter(|isa| isa.has_tiles());
        for (isa, rows) in isas.flat_map(|isa| (1..=32).map(move |rows| (isa, rows))) {
            let mut c = [[0.0; 2 * TILE_ROWS * 2 * LANES]; 2];
            let [plain, streamed] = &mut c;
            let product = |c: &mut [f32]| TileProduct {
                rows,
                panels,
                pairs: blocks * BLOCK_PAIRS,
                a: a.as_ptr(),
                a_tile_stride: blocks * TILE,
                b: weights.panel(0),
                b_pair_stride: pair_stride(LANES),
                b_panel_stride: blocks * TILE,
                b_ahead: 0,
                streamed: Streamed::Neither,
                c: c.as_mut_ptr(),
                c_stride: 2 * LANES,
                resume: false,
            };
            isa.run(product(plain));
            let mut room = vec![bf16::NAN; panels * STREAM_BLOCKS * TILE];
            let to = room.as_mut_ptr();
            let by_blocks = TileProduct { b: to, b_panel_stride: STREAM_BLOCKS * TILE, ..product(streamed) };
            isa.run(ByBlocks(by_blocks, to, TileReader::new(&bf12, 0..panels, 0).unwrap()));
            for (i, (got, expected)) in streamed.iter().zip(&*plain).enumerate().take(rows * 2 * LANES) {
                assert_eq!(got.to_bits(), expected.to_bits(), "{isa}, {rows} rows, {panels} × {blocks}, at {i}");
            }
        }
    }
}

#[test]
fn every_instruction_set_takes_the_sums_of_the_definition() {
    for rows in 1..=32 {
        for (panels, pairs, width) in [(1, 16, 16), (2, 16, 32), (2, 64, 48), (2, 8, 32), (1, 21, 16)] {
            check(rows, panels, pairs, width);
        }
        if rows.is_multiple_of(5) {
            check(rows, 2, (NEAR_BLOCKS + 5) * BLOCK_PAIRS, 32);
        }
    }
}
