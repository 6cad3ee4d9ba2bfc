use baton_model::Dtype;
use half::bf16;

use super::expand::{Expand, SUPER_TILES};
use super::*;
use crate::cpu::chunks::Chunks;
use crate::cpu::isa::{Isa, Kernel};
use crate::cpu::lanes::{LANES, Lanes};
use crate::cpu::pairs::{BLOCK_DEPTH, TILE, TILE_ROWS, tile_index};
use crate::cpu::quant::buffers::QuantBuffers;
use crate::cpu::quant::cells::{Cells, Kept};
use crate::cpu::quant::format::Format;
use crate::cpu::quant::multiply::PANELS;

const DTYPES: [Dtype; 3] = [Dtype::Q2K, Dtype::Q3K, Dtype::Q6K];
const SUPERCELLS: usize = 2;
const DEPTH: usize = SUPERCELLS * SUPER_DEPTH;
const BLOCKS: usize = DEPTH / BLOCK_DEPTH;
const MAX_ROWS: usize = 40;

fn noise(i: usize) -> u64 {
    (i as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(23).wrapping_mul(0xd134_2543_de82_ef95)
}

fn zero(dtype: Dtype) -> i32 {
    match dtype {
        Dtype::Q3K => 4,
        Dtype::Q6K => 32,
        _ => 0,
    }
}

/// One row of a file, with small scales and minima.
fn file_row(dtype: Dtype, seed: usize) -> Vec<u8> {
    let mut bytes: Vec<u8> = (0..dtype.bytes_of(DEPTH)).map(|i| (noise(seed * 7919 + i) >> 40) as u8).collect();
    for block in bytes.chunks_mut(dtype.block_bytes()) {
        let halves = dtype.block_bytes() - if dtype == Dtype::Q2K { 4 } else { 2 };
        for half in block[halves..].chunks_mut(2) {
            half[1] = half[1] & 0x83 | 0x18;
        }
    }
    bytes
}

fn superblocks(dtype: Dtype, row: &[u8]) -> Vec<Superblock> {
    (0..SUPERCELLS).map(|number| Superblock::read(dtype, row, number).unwrap()).collect()
}

#[test]
fn superblocks_are_what_blocks_stand_for() {
    for dtype in DTYPES {
        let row = file_row(dtype, 1);
        let mut expected = [0.0; DEPTH];
        dtype.read(&row, &mut expected);
        let read = superblocks(dtype, &row);
        let got: Vec<f32> = (0..DEPTH).map(|k| read[k / SUPER_DEPTH].value(k % SUPER_DEPTH, zero(dtype))).collect();
        assert_eq!(got, expected, "{dtype}");
        assert!(Superblock::read(dtype, &row, SUPERCELLS).is_none());
    }
    assert!(Superblock::read(Dtype::Q4K, &[0; 144], 0).is_none());
}

#[test]
fn supercells_are_as_small_as_superblocks() {
    for dtype in DTYPES {
        let (kept, in_file) = (Superblocks::of(dtype).unwrap().cell_bytes(), LANES * dtype.block_bytes());
        assert!(kept <= in_file * 106 / 100, "{dtype}: {kept} bytes, {in_file} in the file");
    }
}

/// Small scale times code, as bf16.
fn weight(dtype: Dtype, superblock: &Superblock, k: usize) -> f32 {
    let weight = i32::from(superblock.small_scales[k / SMALL_GROUP]) * (i32::from(superblock.codes[k]) - zero(dtype));
    let nearest = f32::from_bits(((weight as f32).to_bits() + 0x8000) & 0xffff_0000);
    match dtype {
        Dtype::Q6K => assert!((nearest - weight as f32).abs() <= weight.abs() as f32 / 256.0),
        _ => assert_eq!(nearest, weight as f32, "{dtype} needs no rounding"),
    }
    nearest
}

struct ExpandOne<'a>(Superblocks, &'a [u8], &'a mut [bf16; SUPER_TILES * TILE]);

impl Kernel for ExpandOne<'_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self) {
        let (cell, tiles) = (self.1.as_ptr(), self.2.as_mut_ptr());
        match self.0 {
            Superblocks::Two => Expand::<2> { cell, tiles }.run::<L>(),
            Superblocks::Three => Expand::<3> { cell, tiles }.run::<L>(),
            Superblocks::Six => Expand::<6> { cell, tiles }.run::<L>(),
        }
    }
}

#[test]
fn tiles_hold_the_weights() {
    for dtype in DTYPES {
        let kept = Superblocks::of(dtype).unwrap();
        let columns: Vec<_> = (0..LANES).map(|column| superblocks(dtype, &file_row(dtype, column))).collect();
        let mut cell = vec![0; kept.cell_bytes()];
        for (column, superblocks) in columns.iter().enumerate() {
            kept.put(&mut cell, column, &superblocks[0]);
        }
        for isa in Isa::available() {
            let mut tiles = Box::new([bf16::NAN; SUPER_TILES * TILE]);
            isa.run(ExpandOne(kept, &cell, &mut tiles));
            for (k, column) in (0..SUPER_DEPTH).flat_map(|k| (0..LANES).map(move |column| (k, column))) {
                let got = tiles[(k / 2 * LANES + column) * 2 + k % 2].to_f32();
                assert_eq!(got, weight(dtype, &columns[column][0], k), "{dtype} on {isa}: k {k}, column {column}");
            }
        }
    }
}

struct Multiply<'a> {
    cells: &'a Cells,
    panels: usize,
    left: &'a [bf16],
    rows: usize,
    buffers: &'a mut QuantBuffers,
}

impl Kernel for Multiply<'_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self) {
        multiply::<L>(self.cells, 0..self.panels, self.left.as_ptr(), &(0..self.rows), self.buffers);
    }
}

/// The definition, in the order that it states.
fn defined(dtype: Dtype, x: &[bf16], superblocks: &[Superblock]) -> f32 {
    let mut sum = 0.0_f32;
    let chains = |x: &[bf16], weight: &dyn Fn(usize) -> f32| {
        let mut chains = [0.0_f32; 2];
        for (k, x) in x.iter().enumerate() {
            chains[k % 2] = x.to_f32().mul_add(weight(k), chains[k % 2]);
        }
        chains[0] + chains[1]
    };
    for (x, superblock) in x.chunks(SUPER_DEPTH).zip(superblocks) {
        let blocks = x.chunks(BLOCK_DEPTH).enumerate();
        let dot = blocks
            .fold(0.0, |dot, (block, x)| dot + chains(x, &|k| weight(dtype, superblock, block * BLOCK_DEPTH + k)));
        sum = dot.mul_add(superblock.scale.to_f32(), sum);
        if dtype == Dtype::Q2K {
            let groups = x.chunks(SMALL_GROUP).zip(superblock.small_minima);
            let offset =
                groups.fold(0.0, |offset, (x, minimum)| f32::from(minimum).mul_add(chains(x, &|_| 1.0), offset));
            sum = offset.mul_add(superblock.minimum.to_f32(), sum);
        }
    }
    sum
}

/// The product with what the file stands for, and the sum of what is added up in it.
fn meant(dtype: Dtype, x: &[bf16], row: &[u8], superblocks: &[Superblock]) -> (f64, f64) {
    let mut weights = [0.0; DEPTH];
    dtype.read(row, &mut weights);
    let dot = weights.iter().zip(x).map(|(&weight, x)| f64::from(weight) * x.to_f64()).sum();
    let parts = x.iter().enumerate().map(|(k, x)| {
        let (superblock, k) = (&superblocks[k / SUPER_DEPTH], k % SUPER_DEPTH);
        let minimum = superblock.minimum.to_f64() * f64::from(superblock.small_minima[k / SMALL_GROUP]);
        let weight = f64::from(superblock.value(k, zero(dtype))) - minimum;
        x.to_f64().abs() * (weight.abs() + minimum.abs())
    });
    (dot, parts.sum())
}

/// Panels of these types side by side; `None` is one that is no business of supercells.
fn check(panels: &[Option<Dtype>]) {
    let kept: Vec<_> = panels
        .iter()
        .map(|dtype| match dtype {
            Some(dtype) => Kept::Superblocks(Superblocks::of(*dtype).unwrap()),
            None => Kept::Groups(Format::of(Dtype::Q4_0).unwrap()),
        })
        .collect();
    let cells = Cells::new(&mut Chunks::default(), &kept, DEPTH).unwrap();
    let mut x = vec![bf16::ZERO; MAX_ROWS.next_multiple_of(2 * TILE_ROWS) * DEPTH];
    let mut rows = vec![Vec::new(); MAX_ROWS];
    for (row, k) in (0..MAX_ROWS).flat_map(|row| (0..DEPTH).map(move |k| (row, k))) {
        let value = bf16::from_f32((noise(row * DEPTH + k) >> 40) as f32 / (1 << 23) as f32 - 1.0);
        x[tile_index(row, k, BLOCKS)] = value;
        rows[row].push(value);
    }
    let mut expected = vec![7.0; MAX_ROWS * PANELS * LANES];
    for (panel, &dtype) in panels.iter().enumerate() {
        let Some(dtype) = dtype else { continue };
        for column in 0..LANES {
            let file = file_row(dtype, panel * LANES + column);
            let superblocks = superblocks(dtype, &file);
            let kept = Superblocks::of(dtype).unwrap();
            for (number, superblock) in superblocks.iter().enumerate() {
                // SAFETY: one cell, which nobody reads yet.
                let cell =
                    unsafe { std::slice::from_raw_parts_mut(cells.cell(panel, number).cast_mut(), kept.cell_bytes()) };
                kept.put(cell, column, superblock);
            }
            for (row, x) in rows.iter().enumerate() {
                let sum = defined(dtype, x, &superblocks);
                let (meant, parts) = meant(dtype, x, &file, &superblocks);
                // One rounding to bf16 for each weight of Q6_K; beside it that of f32 sums.
                let bound = parts * if dtype == Dtype::Q6K { 1.0 / 256.0 } else { 1e-6 };
                assert!((f64::from(sum) - meant).abs() <= bound, "{dtype}: {sum}, not {meant} ± {bound}");
                expected[row * PANELS * LANES + panel * LANES + column] = sum;
            }
        }
    }
    for (isa, rows) in Isa::available().into_iter().flat_map(|isa| (1..=MAX_ROWS).map(move |rows| (isa, rows))) {
        let mut buffers = QuantBuffers::new(MAX_ROWS.next_multiple_of(2 * TILE_ROWS), DEPTH).unwrap();
        buffers.sums.as_mut_slice().fill(7.0);
        isa.run(Multiply { cells: &cells, panels: panels.len(), left: &x, rows, buffers: &mut buffers });
        let got = &buffers.sums.as_slice()[..expected.len()];
        for (i, (got, expected)) in got.iter().zip(&expected).enumerate() {
            let (row, column) = (i / (PANELS * LANES), i % (PANELS * LANES));
            let expected = if row < rows { *expected } else { 7.0 };
            assert_eq!(got.to_bits(), expected.to_bits(), "{panels:?} on {isa}: {rows} rows at ({row}, {column})");
        }
    }
}

#[test]
fn every_route_gives_what_is_defined() {
    for dtype in DTYPES {
        check(&[Some(dtype)]);
    }
    check(&[Some(Dtype::Q6K), Some(Dtype::Q3K)]);
    check(&[Some(Dtype::Q2K), Some(Dtype::Q6K)]);
    check(&[None, Some(Dtype::Q6K)]);
}
