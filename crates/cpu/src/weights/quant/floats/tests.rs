use baton_model::Dtype;
use half::bf16;

use super::super::format::QuantFormat;
use super::super::packing::{pack_column, packed_bytes};
use super::panel::AnyPanel;
use super::unpack::{bias, load_biased};
use crate::matmul::bf16::Chains;
use crate::simd::isa::Isa;
use crate::simd::vector::{Kernel, LANES, Lanes};
use crate::tests::noise;
use crate::weights::format::{PanelKernel, WeightFormat};
use crate::weights::layout::{BLOCK_PAIRS, GROUP, TILE, tile_index};

const DEPTH: usize = 512;
const BLOCKS: usize = DEPTH / GROUP;

fn dtypes() -> impl Iterator<Item = Dtype> {
    Dtype::ALL.into_iter().filter(|dtype| QuantFormat::of(*dtype).is_some())
}

/// A row of blocks whose halves, where scales and minima are, have exponents in the middle of their range.
fn file_row(dtype: Dtype, seed: usize) -> Vec<u8> {
    let mut bytes: Vec<u8> = (0..dtype.bytes_of(DEPTH)).map(|i| (noise(seed * 7919 + i) >> 40) as u8).collect();
    let halves: &[usize] = match dtype {
        Dtype::Q4_1 | Dtype::Q5_1 | Dtype::Q4K | Dtype::Q5K => &[0, 2],
        Dtype::Q2K => &[80, 82],
        Dtype::Q3K => &[108],
        Dtype::Q6K => &[208],
        _ => &[0],
    };
    for block in bytes.chunks_mut(dtype.block_bytes()) {
        for &half in halves {
            block[half + 1] = block[half + 1] & 0x83 | 0x18;
        }
    }
    bytes
}

/// One panel.
fn panel(format: QuantFormat, dtype: Dtype, rows: &[Vec<u8>]) -> Vec<u8> {
    let mut data = vec![0; DEPTH / format.depth() * format.bytes()];
    for (column, row) in rows.iter().enumerate() {
        for (number, packed) in data.chunks_mut(format.bytes()).enumerate() {
            format.pack_column(packed, column, dtype, row, number);
        }
    }
    data
}

struct Unpacked<'a, const BITS: usize>(&'a [u8]);

impl<const BITS: usize> Kernel for Unpacked<'_, BITS> {
    type Output = Vec<f32>;

    #[inline(always)]
    fn run<L: Lanes>(self) -> Vec<f32> {
        let value = |k| {
            // SAFETY: a whole block.
            let (value, position) = unsafe { load_biased::<L, BITS>(self.0.as_ptr(), k) };
            value.to_array().map(|value| value - bias(BITS, position))
        };
        (0..GROUP).flat_map(value).collect()
    }
}

#[test]
fn values_take_as_many_bits_as_they_have() {
    fn check<const BITS: usize>() {
        let value = |column: usize, k: usize| (noise(column * GROUP + k) >> 40) as u8 & ((1 << BITS) - 1) as u8;
        let mut packed = vec![0; packed_bytes(BITS)];
        assert_eq!(packed.len() * 8, LANES * GROUP * BITS);
        for column in 0..LANES {
            pack_column(&mut packed, BITS, column, &std::array::from_fn::<_, GROUP, _>(|k| value(column, k)));
        }
        let expected = (0..GROUP * LANES).map(|i| value(i % LANES, i / LANES));
        let expected: Vec<f32> = expected.map(f32::from).collect();
        for isa in Isa::available() {
            assert_eq!(isa.run(Unpacked::<BITS>(&packed)), expected, "{BITS} bits, {isa}");
        }
    }
    check::<2>();
    check::<3>();
    check::<4>();
    check::<5>();
    check::<6>();
    check::<8>();
}

/// A panel, and what is done with it.
struct OfPanel<K>(QuantFormat, *const u8, K);

impl<K: PanelKernel> Kernel for OfPanel<K> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self) {
        AnyPanel { format: self.0, data: self.1, block: 0, ahead: Some(4096) }.run::<L>(self.2);
    }
}

/// The same on machines that may have tiles: only these multiply weights as they are read.
struct WithTiles<K>(OfPanel<K>);

impl<K: PanelKernel> Kernel for WithTiles<K> {
    type Output = bool;

    #[inline(always)]
    fn run<L: Lanes>(self) -> bool {
        if L::TABLE_BYTES == 64 {
            self.0.run::<L>();
        }
        L::TABLE_BYTES == 64
    }
}

struct Tiles<'a>(&'a mut [bf16]);

impl PanelKernel for Tiles<'_> {
    #[inline(always)]
    fn run<L: Lanes, F: WeightFormat>(self, mut panel: F) {
        // SAFETY: all blocks of a panel.
        unsafe { panel.expand::<L>(BLOCKS, self.0.as_mut_ptr()) };
    }
}

/// All blocks of a panel.
fn expanded(isa: Isa, format: QuantFormat, data: &[u8]) -> Vec<bf16> {
    let mut tiles = vec![bf16::NAN; BLOCKS * TILE];
    isa.run(OfPanel(format, data.as_ptr(), Tiles(&mut tiles)));
    tiles
}

/// In the order of a tile.
fn weight(tiles: &[bf16], column: usize, k: usize) -> bf16 {
    tiles[k / GROUP * TILE + k % GROUP / 2 * 2 * LANES + 2 * column + k % 2]
}

#[test]
fn weights_are_what_the_file_stands_for() {
    for dtype in dtypes() {
        let format = QuantFormat::of(dtype).unwrap();
        let rows: Vec<_> = (0..LANES).map(|row| file_row(dtype, row)).collect();
        let data = panel(format, dtype, &rows);
        let tiles = expanded(Isa::Portable, format, &data);
        let (mut errors, mut squares, mut taken) = (0.0, 0.0, 0.0);
        for (column, row) in rows.iter().enumerate() {
            let mut expected = [0.0; DEPTH];
            dtype.read(row, &mut expected);
            for (k, &expected) in expected.iter().enumerate() {
                let got = weight(&tiles, column, k).to_f32();
                // A bf16 has eight bits; what cancels out leaves errors of what it was made of, and the lowest position of values
                // some more, where they have several: a scale is at most 1/4 there.
                let largest = 300.0 * 2_f32.powi(-9);
                let positions = match format.bits() {
                    4 => 0.25 * 2_f32.powi(-12),
                    5 | 6 => 0.25 * 2_f32.powi(-14),
                    _ => 0.0,
                };
                let bound = expected.abs() / 128.0 + largest * 1e-5 + positions;
                assert!((got - expected).abs() <= bound, "{dtype} at ({k}, {column}): {got}, not {expected}");
                errors += f64::from(got - expected).powi(2);
                squares += f64::from(expected).powi(2);
                taken += f64::from(got - expected) * f64::from(expected);
            }
        }
        // Rounding has 0.0017, and nothing is taken away from all.
        assert!((errors / squares).sqrt() < 0.0022, "{dtype}: {}", (errors / squares).sqrt());
        assert!((taken / squares).abs() < 0.0004, "{dtype}: {}", taken / squares);
        for isa in Isa::available() {
            let same = expanded(isa, format, &data).iter().zip(&tiles).all(|(a, b)| a.to_bits() == b.to_bits());
            assert!(same, "{dtype} on {isa}");
        }
    }
}

const C_STRIDE: usize = 2 * LANES;
/// The most rows of quantized weights that are multiplied as these are read.
const ROWS: usize = 2;

fn sums<const R: usize>(x: &[bf16], c: &mut [f32]) -> Chains<R> {
    Chains { left: x.as_ptr(), pairs: BLOCKS * BLOCK_PAIRS, c: c.as_mut_ptr(), c_stride: C_STRIDE, resume: false }
}

#[test]
fn few_rows_meet_the_weights_of_tiles_in_their_order() {
    let mut x = vec![bf16::NAN; BLOCKS * TILE];
    let value = |row: usize, k: usize| bf16::from_f32((noise(row * DEPTH + k) >> 40) as f32 / (1 << 23) as f32 - 1.0);
    for (row, k) in (0..ROWS).flat_map(|row| (0..DEPTH).map(move |k| (row, k))) {
        x[tile_index(row, k, BLOCKS)] = value(row, k);
    }
    for dtype in dtypes() {
        let format = QuantFormat::of(dtype).unwrap();
        let rows: Vec<_> = (0..LANES).map(|row| file_row(dtype, row)).collect();
        let data = panel(format, dtype, &rows);
        let tiles = expanded(Isa::Portable, format, &data);
        for (isa, rows) in Isa::available().into_iter().flat_map(|isa| (1..=ROWS).map(move |rows| (isa, rows))) {
            let mut c = [7.0; ROWS * C_STRIDE];
            let multiplied = match rows {
                1 => isa.run(WithTiles(OfPanel(format, data.as_ptr(), sums::<1>(&x, &mut c)))),
                _ => isa.run(WithTiles(OfPanel(format, data.as_ptr(), sums::<ROWS>(&x, &mut c)))),
            };
            if !multiplied {
                continue;
            }
            for (i, got) in c.into_iter().enumerate() {
                let (row, column) = (i / C_STRIDE, i % C_STRIDE);
                let expected = if row < rows && column < LANES {
                    (0..BLOCKS).fold(0.0, |sum, block| {
                        let chain = |odd: usize| {
                            (0..GROUP).skip(odd).step_by(2).map(|k| block * GROUP + k).fold(0.0_f32, |sum, k| {
                                value(row, k).to_f32().mul_add(weight(&tiles, column, k).to_f32(), sum)
                            })
                        };
                        sum + (chain(0) + chain(1))
                    })
                } else {
                    7.0
                };
                assert_eq!(got.to_bits(), expected.to_bits(), "{dtype} on {isa}, {rows} rows: ({row}, {column})");
            }
        }
    }
}

#[test]
fn panels_are_as_small_as_in_the_file() {
    for dtype in dtypes() {
        let format = QuantFormat::of(dtype).unwrap();
        let (kept, in_file) = (DEPTH / format.depth() * format.bytes(), LANES * dtype.bytes_of(DEPTH));
        // Products of scales are kept as f32: 64 bits for each 32 weights.
        let more = if matches!(dtype, Dtype::Q4K | Dtype::Q5K) { LANES * DEPTH / 4 } else { in_file * 6 / 100 };
        assert!(kept <= in_file + more, "{dtype}: {kept} bytes, {in_file} in the file");
    }
}
