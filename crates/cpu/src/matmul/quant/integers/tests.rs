use std::ops::Range;

use baton_model::Dtype;
use half::bf16;

#[cfg(target_arch = "x86_64")]
use super::avx512;
use super::expanded_block::ExpandedBlock;
use super::product::IntegerProduct;
use super::rows::{ByteStrip, HIGH, IntegerRows, ROW_BYTES, STRIP_ROWS, Values, round};
use crate::simd::isa::Isa;
use crate::simd::vector::{Kernel, LANES, Lanes};
use crate::tests::noise;
use crate::weights::layout::{GROUP, tile_index};
use crate::weights::quant::format::QuantFormat;
use crate::weights::quant::group::Group;
use crate::weights::quant::superblock::Superblock;

const BLOCKS: usize = 16;
const MAX_ROWS: usize = 3 * STRIP_ROWS + 1;

/// Of sizes that differ by millions.
fn value(i: usize) -> bf16 {
    let size = 2_f32.powi((noise(i) >> 20) as i32 % 13 - 6);
    bf16::from_f32(((noise(i) >> 40) as f32 / (1 << 23) as f32 - 1.0) * size)
}

/// The unit, and multiples of it.
fn defined_row(values: &[f32]) -> (f64, Vec<i64>) {
    let values = values.iter().map(|&x| f64::from(x));
    let largest = values.clone().fold(0.0, |largest: f64, x| largest.max(x.abs()));
    let unit = 2_f64.powi(largest.log2().floor() as i32 - 12);
    (unit, values.map(|x| (x / unit).round_ties_even() as i64).collect())
}

/// Of a row in tile order.
fn defined_blocks(left: &[bf16], row: usize) -> Vec<(f64, Vec<i64>)> {
    let value = |k: usize| left[tile_index(row, k, BLOCKS)].to_f32();
    let block = |first: usize| defined_row(&(first..first + GROUP).map(value).collect::<Vec<_>>());
    (0..BLOCKS).map(|number| block(number * GROUP)).collect()
}

enum Round<'a> {
    Bf16(&'a [bf16; GROUP]),
    F32(&'a [f32; GROUP]),
}

impl Kernel for Round<'_> {
    type Output = ((f32, [f32; 3]), [i8; ROW_BYTES]);

    #[inline(always)]
    fn run<L: Lanes>(self) -> Self::Output {
        let mut strip = ByteStrip { bytes: [[7; _]; _], units: [7.0; _], sums: [[7.0; _]; _] };
        let values = match self {
            Self::Bf16(values) => Values::<L>::of_bf16(values),
            Self::F32(values) => Values::of_f32(values),
        };
        strip.put(1, &round(values));
        ((strip.units[1], strip.sums.map(|sums| sums[1])), strip.bytes[1])
    }
}

#[test]
fn rows_become_multiples_of_a_power_of_two() {
    for block in 0..200 {
        let mut values: [f32; GROUP] = std::array::from_fn(|i| value(block * GROUP + i).to_f32());
        match block {
            // As large as a block's largest value can be, compared with its power of two, and halfway between two numbers.
            0 => values[..4].copy_from_slice(&[1.992_187_5, -1.992_187_5, 1.5 / 4096.0, -2.5 / 4096.0]),
            1 => values = [-1.0; GROUP],
            2 => values[3] = 2_f32.powi(112).next_down(),
            3 => values = values.map(|x| bf16::from_f32(x * 1e-33).to_f32()),
            // No bf16: the largest of all becomes its power of two.
            4 => values[..3].copy_from_slice(&[2_f32.next_down(), -2_f32.next_down(), 1.0 / 3.0]),
            5.. if block % 2 == 1 => values = values.map(|x| x / 3.0),
            _ => {}
        }
        let (unit, expected) = defined_row(&values);
        let even_then_odd = (0..2).flat_map(|parity| expected.iter().skip(parity).step_by(2).copied());
        let even_then_odd: Vec<i64> = even_then_odd.collect();
        let (first, last) = expected.split_at(GROUP / 2);
        let sums = [&expected, first, last].map(|some| some.iter().sum::<i64>() as f64 * unit);
        let halves = values.map(bf16::from_f32);
        let are_halves = halves.iter().zip(&values).all(|(half, value)| half.to_f32() == *value);
        for isa in Isa::available() {
            let mut ways = vec![isa.run(Round::F32(&values))];
            ways.extend(are_halves.then(|| isa.run(Round::Bf16(&halves))));
            for ((got_unit, got_sums), bytes) in ways {
                assert_eq!((f64::from(got_unit), got_sums.map(f64::from)), (unit, sums), "{isa}, block {block}");
                let (high, low) = bytes.split_at(GROUP);
                let numbers = high.iter().zip(low);
                let got: Vec<i64> =
                    numbers.map(|(&high, &low)| i64::from(HIGH) * i64::from(high) + i64::from(low)).collect();
                assert_eq!(got, even_then_odd, "{isa}, block {block}");
                assert!(bytes.iter().all(|byte| (-64..=64).contains(byte)), "{isa}, block {block}: {bytes:?}");
            }
        }
    }
}

#[test]
fn what_is_no_number_stays_none_and_what_is_next_to_nothing_is_zero() {
    for isa in Isa::available() {
        let both = |values: [f32; GROUP]| {
            let halves = isa.run(Round::Bf16(&values.map(bf16::from_f32)));
            (isa.run(Round::F32(&values)), halves)
        };
        for wrong in [f32::INFINITY, f32::NEG_INFINITY, f32::NAN, -f32::NAN, -(2_f32.powi(112))] {
            let mut values = [1.0; GROUP];
            values[17] = wrong;
            for ((unit, sums), bytes) in <[_; 2]>::from(both(values)) {
                assert!(unit.is_nan() && sums.iter().all(|sum| sum.is_nan()), "{isa}, {wrong}");
                assert_eq!(bytes, [0; ROW_BYTES], "{isa}, {wrong}");
            }
        }
        for small in [0.0, 2_f32.powi(-115), -2_f32.powi(-126)] {
            for got in <[_; 2]>::from(both([small; GROUP])) {
                assert_eq!(got, ((0.0, [0.0; 3]), [0; ROW_BYTES]), "{isa}, {small}");
            }
        }
        for (got, _) in <[_; 2]>::from(both([2_f32.powi(-114); GROUP])) {
            assert_eq!(got, (2_f32.powi(-126), [-109, -110, -110].map(|power| 2_f32.powi(power))), "{isa}");
        }
    }
}

/// A panel's rows of a file, with the largest and the smallest values among others.
fn file_row(dtype: Dtype, row: usize) -> Vec<u8> {
    let byte = |i: usize| match (row, i % 5) {
        (0, _) => 0xff,
        (1, _) => 0x80,
        (2, _) => 0x7f,
        (3, 0) => 0x7f,
        _ => (noise(row * 7919 + i) >> 40) as u8,
    };
    let mut bytes: Vec<u8> = (0..dtype.bytes_of(BLOCKS * GROUP)).map(byte).collect();
    for block in bytes.chunks_mut(dtype.block_bytes()) {
        // Scales and minima are small.
        let halves: &[usize] = match dtype {
            Dtype::Q4_0 | Dtype::Q5_0 | Dtype::Q8_0 => &[0],
            Dtype::Q2K => &[80, 82],
            Dtype::Q3K => &[108],
            Dtype::Q6K => &[208],
            _ => &[0, 2],
        };
        for at in halves {
            block[at + 1] = block[at + 1] & 0x83 | 0x20;
        }
    }
    bytes
}

/// Some k of a column that share a scale.
struct Part {
    values: Vec<i64>,
    scale: f32,
    minimum: f32,
}

fn parts_of(dtype: Dtype, format: QuantFormat, row: &[u8]) -> Vec<Part> {
    match format {
        QuantFormat::Blocks(format) => {
            let part = |number: usize| {
                let group = Group::read(dtype, row, number).unwrap();
                let minimum = if format.minima { group.minimum } else { -f32::from(format.zero_point) * group.scale };
                Part { values: group.values.map(i64::from).to_vec(), scale: group.scale, minimum }
            };
            (0..BLOCKS).map(part).collect()
        }
        QuantFormat::Superblocks(format) => {
            let part = |number: usize| {
                let superblock = Superblock::read(dtype, row, number / 16).unwrap();
                let group = number % 16;
                let scale = superblock.scale.to_f32() * f32::from(superblock.small_scales[group]);
                let minimum = match dtype {
                    Dtype::Q2K => superblock.minimum.to_f32() * f32::from(superblock.small_minima[group]),
                    _ => -f32::from(format.zero_point()) * scale,
                };
                let values = &superblock.values[group * 16..][..16];
                Part { values: values.iter().map(|&value| i64::from(value)).collect(), scale, minimum }
            };
            (0..2 * BLOCKS).map(part).collect()
        }
    }
}

/// In the order that is stated.
fn defined(row: &[(f64, Vec<i64>)], parts: &[Part]) -> f32 {
    let mut sum = 0.0_f32;
    for (number, part) in parts.iter().enumerate() {
        let count = part.values.len();
        let (unit, q) = &row[number * count / GROUP];
        let q = &q[number * count % GROUP..][..count];
        let dot: i64 = q.iter().zip(&part.values).map(|(q, value)| q * value).sum();
        sum = (dot as f32 * *unit as f32).mul_add(part.scale, sum);
        sum = part.minimum.mul_add((q.iter().sum::<i64>() as f64 * unit) as f32, sum);
    }
    sum
}

/// One product of two slices, and, with AVX-512, of few rows without expanding first.
struct Products<'a> {
    rows: usize,
    left: &'a [bf16],
    format: QuantFormat,
    data: &'a [u8],
}

impl Kernel for Products<'_> {
    type Output = Vec<Vec<f32>>;

    #[inline(always)]
    fn run<L: Lanes>(self) -> Vec<Vec<f32>> {
        let mut whole = IntegerRows::new(MAX_ROWS, BLOCKS * GROUP).unwrap();
        // SAFETY: all blocks of whole tiles of rows.
        unsafe { whole.round::<L>(&(0..self.rows), self.left.as_ptr(), BLOCKS) };
        let mut expanded = vec![ExpandedBlock::ZERO; BLOCKS];
        for (number, block) in expanded.iter_mut().enumerate() {
            // SAFETY: an existing block.
            unsafe { self.format.expand::<L>(self.data.as_ptr(), number, 0, block) };
        }
        let product = |slice: Range<usize>, c: &mut Vec<f32>| IntegerProduct {
            rows: self.rows,
            blocks: slice.len(),
            left: whole.strips()[slice.start..].as_ptr(),
            left_stride: BLOCKS,
            parts: self.format.parts(),
            #[cfg(target_arch = "x86_64")]
            small_values: self.format.has_small_values(),
            c: c.as_mut_ptr(),
            c_stride: LANES,
            resume: slice.start > 0,
        };
        let mut c = vec![7.0; (MAX_ROWS + 1) * LANES];
        product(0..5, &mut c).run::<L>(&expanded[..5]);
        product(5..BLOCKS, &mut c).run::<L>(&expanded[5..]);
        #[cfg_attr(not(target_arch = "x86_64"), allow(unused_mut, reason = "other routes are x86's"))]
        let mut routes = vec![c];
        #[cfg(target_arch = "x86_64")]
        if L::TABLE_BYTES == 64 && self.rows <= avx512::FEW_ROWS {
            let mut c = vec![7.0; (MAX_ROWS + 1) * LANES];
            // SAFETY: the machine has the instructions; a whole panel.
            unsafe { avx512::few_rows(&product(0..BLOCKS, &mut c), self.format, self.data.as_ptr()) };
            routes.push(c);
        }
        routes
    }
}

/// One panel.
fn packed_panel(dtype: Dtype, format: QuantFormat, rows: &[Vec<u8>]) -> Vec<u8> {
    let mut data = vec![0; BLOCKS * GROUP / format.depth() * format.bytes()];
    for (column, row) in rows.iter().enumerate() {
        for (number, packed) in data.chunks_mut(format.bytes()).enumerate() {
            format.pack_column(packed, column, dtype, row, number);
        }
    }
    data
}

#[test]
fn every_route_gives_what_is_defined() {
    let mut left: Vec<bf16> = (0..MAX_ROWS.next_multiple_of(16) * BLOCKS * GROUP).map(value).collect();
    for k in 0..BLOCKS * GROUP {
        // The largest high byte, with the smallest low one, and the other way round.
        left[tile_index(0, k, BLOCKS)] = bf16::from_f32(1.984_375);
        left[tile_index(1, k, BLOCKS)] = bf16::from_f32(-1.984_375);
    }
    let left_rows: Vec<_> = (0..MAX_ROWS).map(|row| defined_blocks(&left, row)).collect();
    for (dtype, format) in Dtype::ALL.into_iter().filter_map(|dtype| Some((dtype, QuantFormat::of(dtype)?))) {
        let file: Vec<_> = (0..LANES).map(|column| file_row(dtype, column)).collect();
        let columns: Vec<_> = file.iter().map(|row| parts_of(dtype, format, row)).collect();
        let data = packed_panel(dtype, format, &file);
        for rows in [1, 2, 3, 4, 5, 6, 7, 12, MAX_ROWS] {
            for isa in Isa::available() {
                for (route, got) in isa.run(Products { rows, left: &left, format, data: &data }).iter().enumerate() {
                    for (i, got) in got.iter().enumerate() {
                        let (row, column) = (i / LANES, i % LANES);
                        let expected = if row < rows { defined(&left_rows[row], &columns[column]) } else { 7.0 };
                        let place = format!("{rows} rows at ({row}, {column}), route {route}");
                        assert_eq!(got.to_bits(), expected.to_bits(), "{dtype} on {isa}: {place}");
                    }
                }
            }
        }
    }
}

/// The smallest values that are not all zero, and the largest that are numbers: every route gives the same bits.
#[test]
fn rows_as_small_and_as_large_as_they_may_be() {
    const ROWS: usize = 13;
    for power in [-115, -114, -113, 111] {
        let signed = |i: usize| if noise(i).is_multiple_of(2) { 1.0 } else { -1.0 };
        let size = |i: usize| 1.0 + (noise(i) >> 57) as f32 / 128.0;
        let of = |i: usize| bf16::from_f32(signed(i) * size(i) * 2_f32.powi(power - (i % 5) as i32));
        let left: Vec<bf16> = (0..16 * BLOCKS * GROUP).map(of).collect();
        for (dtype, format) in Dtype::ALL.into_iter().filter_map(|dtype| Some((dtype, QuantFormat::of(dtype)?))) {
            let file: Vec<_> = (0..LANES).map(|column| file_row(dtype, column)).collect();
            let data = packed_panel(dtype, format, &file);
            let bits = |isa: Isa| -> Vec<Vec<u32>> {
                let routes = isa.run(Products { rows: ROWS, left: &left, format, data: &data });
                routes.iter().map(|route| route[..ROWS * LANES].iter().map(|sum| sum.to_bits()).collect()).collect()
            };
            let expected = bits(Isa::Portable).swap_remove(0);
            assert_eq!(expected.iter().all(|sum| sum << 1 == 0), power < -114, "{dtype}, 2^{power}");
            for isa in Isa::available() {
                for (route, got) in bits(isa).into_iter().enumerate() {
                    assert_eq!(got, expected, "{dtype} on {isa}, 2^{power}, route {route}");
                }
            }
        }
    }
}

#[test]
fn superblocks_are_as_small_as_in_the_file() {
    for dtype in [Dtype::Q2K, Dtype::Q3K, Dtype::Q6K] {
        let (kept, in_file) = (QuantFormat::of(dtype).unwrap().bytes(), LANES * dtype.block_bytes());
        assert!(kept <= in_file * 106 / 100, "{dtype}: {kept} bytes, {in_file} in the file");
    }
}

/// An infinite value of a row makes the sums of that row no number, and no others.
#[test]
fn what_is_no_number_reaches_its_row_alone() {
    let (dtype, rows) = (Dtype::Q4_1, STRIP_ROWS + 2);
    let mut left: Vec<bf16> = (0..MAX_ROWS.next_multiple_of(16) * BLOCKS * GROUP).map(value).collect();
    left[tile_index(3, 7 * GROUP + 5, BLOCKS)] = bf16::INFINITY;
    let format = QuantFormat::of(dtype).unwrap();
    let file: Vec<_> = (0..LANES).map(|column| file_row(dtype, column)).collect();
    let data = packed_panel(dtype, format, &file);
    for isa in Isa::available() {
        let got = isa.run(Products { rows, left: &left, format, data: &data });
        for (i, sum) in got.iter().flat_map(|route| route[..rows * LANES].iter().enumerate()) {
            assert_eq!(sum.is_nan(), i / LANES == 3, "{isa}: ({}, {})", i / LANES, i % LANES);
        }
    }
}
