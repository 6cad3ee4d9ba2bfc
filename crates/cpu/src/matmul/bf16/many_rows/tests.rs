//! Whole items against items of two panels, which are not finished while others pass by.

use std::ops::Range;

use half::bf16;

use super::*;
use crate::matmul::arithmetic::{Arithmetic, LeftOperand};
use crate::matmul::gemm::{Gemm, Output};
use crate::matmul::multiply::Packed;
use crate::matmul::quant::QuantMatmul;
use crate::matmul::rows::LeftRows;
use crate::memory::region::{Buffer, Floats};
use crate::memory::shared::Shared;
use crate::simd::isa::Isa;
use crate::simd::vector::Kernel;
use crate::weights::Projection;

#[derive(Clone, Copy, Debug)]
enum Kind {
    Store,
    AddTo,
    Gated,
}

struct Case {
    isa: Isa,
    kind: Kind,
    rows: usize,
    weights: Vec<Projection<bf16>>,
    left: Buffer<bf16>,
    packed: TileRows,
}

struct Multiply<'a>(GemmItem<'a, bf16>, *const bf16, &'a mut TileRows);

impl Kernel for Multiply<'_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self) {
        many_rows::<L>(&self.0, self.1, self.2);
    }
}

/// Numbers of a few exponents, so that weights are kept in 12 bits, and one in some hundred of another.
fn bits(i: usize) -> u16 {
    let bits = (i as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
    let exponent = if bits.is_multiple_of(601) { 90 } else { 118 + (bits >> 16) % 9 };
    (exponent as u16) << 7 | bits as u16 & 0x807f
}

impl Case {
    fn new(isa: Isa, kind: Kind, (rows, panels, depth): (usize, usize, usize), is_bf12: bool) -> Self {
        let matrix = Matrix::of_bits(panels, depth, is_bf12, bits);
        assert_ne!(matrix.is_plain(), is_bf12);
        let mut left = Buffer::new(bf16::left_operand_elements(rows, depth)).unwrap();
        left.as_mut_slice().iter_mut().enumerate().for_each(|(i, value)| *value = bf16::from_bits(bits(i + 77)));
        let weights = vec![Projection { matrix, bias: None, first_column: 0 }];
        Self { isa, kind, rows, weights, left, packed: TileRows::new(rows, depth, depth).unwrap() }
    }

    /// Items of this number of panels, one after the other.
    fn run(&mut self, panels_of_item: usize) -> Vec<u32> {
        let (rows, matrix) = (self.rows, &self.weights[0].matrix);
        let (width, depth, panels) = (matrix.width(), matrix.depth(), matrix.panels());
        let mut y = Floats::new(rows * width).unwrap();
        y.as_mut_slice().iter_mut().enumerate().for_each(|(i, y)| *y = i as f32 / 1024.0);
        let mut gated = Buffer::<bf16>::new(bf16::left_operand_elements(rows, width / 2)).unwrap();
        let items: Vec<Range<usize>> =
            (0..panels).step_by(panels_of_item).map(|first| first..panels.min(first + panels_of_item)).collect();
        for panels in items {
            let output = match self.kind {
                Kind::Store => Output::Store { y: Shared::new(y.as_mut_slice()), stride: width },
                Kind::AddTo => Output::AddTo { y: Shared::new(y.as_mut_slice()), stride: width },
                Kind::Gated => Output::Gated(LeftOperand::new(Shared::new(gated.as_mut_slice()), rows, width / 2)),
            };
            let left = self.left.as_slice().as_ptr();
            let x = LeftRows::Stored(LeftOperand::new(Shared::new(self.left.as_mut_slice()), rows, depth));
            let gemm = Gemm { x, weights: &self.weights, quant_matmul: QuantMatmul::Float, y: output };
            let item = GemmItem { gemm: &gemm, weights: &self.weights[0], rows: 0..rows, panels };
            self.isa.run(Multiply(item, left, &mut self.packed));
        }
        match self.kind {
            Kind::Gated => gated.as_slice().iter().map(|y| u32::from(y.to_bits())).collect(),
            _ => y.as_slice().iter().map(|y| y.to_bits()).collect(),
        }
    }
}

#[test]
fn however_many_panels_an_item_has() {
    // Where rows are multiplied as they are here: with tiles, or if there are few of them.
    let isas: Vec<Isa> = Isa::available().into_iter().filter(|isa| isa.has_tiles()).collect();
    for (rows, panels, blocks) in [
        // Deep ones in several groups of panels, rows that are no multiples of those that are finished at a time.
        (1, 136, 66),
        (16, 200, 70),
        (22, 260, 66),
        (105, 132, 66),
        (150, 200, 70),
        // One pass, several, and in between; few rows, and a lone last panel.
        (40, 9, 24),
        (256, 6, 64),
        (130, 7, 64),
        (33, 5, 18),
        (97, 12, 29),
        (7, 3, 3),
    ] {
        for (kind, is_bf12) in [(Kind::Store, false), (Kind::AddTo, true), (Kind::Gated, panels % 4 == 0)] {
            if matches!(kind, Kind::Gated) && panels % 2 == 1 {
                continue;
            }
            for &isa in &isas {
                let mut case = Case::new(isa, kind, (rows, panels, blocks * BLOCK_DEPTH - 5), is_bf12);
                let (whole, alone) = (case.run(panels), case.run(PRODUCT_PANELS));
                let plain =
                    is_bf12.then(|| Case::new(isa, kind, (rows, panels, blocks * BLOCK_DEPTH - 5), false).run(panels));
                assert!(
                    plain.is_none_or(|plain| plain == whole),
                    "{isa}, {kind:?}, {rows} × {panels} × {blocks}: not as plain ones"
                );
                assert!(whole == alone, "{isa}, {kind:?}, {rows} rows × {panels} panels × {blocks} blocks, {is_bf12}");
            }
        }
    }
}

#[test]
fn all_weights_are_prefetched_before_they_are_needed() {
    const PRODUCTS: usize = 8;
    // One pass of whole panels, which follow each other; several; slices of deep ones; a lone last panel.
    let shapes = [(6, 18), (5, 24), (6, 64), (7, 64), (6, 128)];
    for ((panels, blocks), is_bf12) in shapes.into_iter().flat_map(|shape| [(shape, false), (shape, true)]) {
        let matrix = Matrix::of_bits(panels, blocks * BLOCK_DEPTH, is_bf12, bits);
        let lines_of = |panel: usize, blocks: Range<usize>| {
            let first = matrix.address(panel, blocks.start).addr() / 64;
            first..first + blocks.len() * matrix.block_bytes(panel) / 64
        };
        let passes: Vec<Pass> = Passes::new(0..panels, blocks, PassBlocks::near(blocks)).collect();
        let mut prefetched = std::collections::HashSet::new();
        for (i, pass) in passes.iter().enumerate() {
            for line in pass.panels.clone().flat_map(|panel| lines_of(panel, pass.blocks.clone())) {
                // What the second one begins with was to be prefetched before the first.
                assert!(i < 2 || prefetched.contains(&line), "{panels} panels × {blocks} blocks, pass {i}, {is_bf12}");
            }
            let weights = next_weights(&matrix, passes.get(i + 1), passes.get(i + 2));
            let steps = PRODUCTS * pass.blocks.len();
            assert!(!is_bf12 || pass.panels.len() < PRODUCT_PANELS || weights.left() <= steps);
            prefetched.extend(weights.lines(steps, pass.blocks.len()));
        }
    }
}
