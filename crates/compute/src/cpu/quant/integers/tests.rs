use baton_model::Dtype;
use half::bf16;

use super::super::format::GROUP;
use super::super::group::Group;
use super::cell::{Block, IntegerFormat};
use super::product::IntegerProduct;
use super::rows::{HIGH, ROW_BYTES, STRIP_ROWS, WholeRows, round};
#[cfg(target_arch = "x86_64")]
use super::{avx512, has_byte_products};
use crate::cpu::isa::{Isa, Kernel};
use crate::cpu::lanes::{LANES, Lanes};
use crate::cpu::pairs::tile_index;

const BLOCKS: usize = 5;
const MAX_ROWS: usize = 3 * STRIP_ROWS + 1;

fn noise(i: usize) -> u64 {
    (i as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(23).wrapping_mul(0xd134_2543_de82_ef95)
}

/// Of sizes that differ by a few thousand.
fn value(i: usize) -> bf16 {
    let size = 2_f32.powi((noise(i) >> 20) as i32 % 13 - 6);
    bf16::from_f32(((noise(i) >> 40) as f32 / (1 << 23) as f32 - 1.0) * size)
}

/// The unit, and multiples of it.
fn defined_row(values: &[bf16]) -> (f64, Vec<i64>) {
    let largest = values.iter().fold(0.0, |largest: f64, x| largest.max(x.to_f64().abs()));
    let unit = 2_f64.powi(largest.log2().floor() as i32 - 12);
    (unit, values.iter().map(|x| (x.to_f64() / unit).round_ties_even() as i64).collect())
}

struct Round<'a>(&'a [bf16; GROUP]);

impl Kernel for Round<'_> {
    type Output = ((f32, f32), [i8; ROW_BYTES]);

    #[inline(always)]
    fn run<L: Lanes>(self) -> Self::Output {
        let mut bytes = [7; ROW_BYTES];
        (round::<L>(self.0, &mut bytes), bytes)
    }
}

#[test]
fn rows_become_multiples_of_a_power_of_two() {
    for block in 0..200 {
        let mut values: [bf16; GROUP] = std::array::from_fn(|i| value(block * GROUP + i));
        match block {
            // As large as a block's largest value can be, compared with its power of two, and halfway between two numbers.
            0 => values[..4]
                .copy_from_slice(&[1.992_187_5, -1.992_187_5, 1.5 / 4096.0, -2.5 / 4096.0].map(bf16::from_f32)),
            1 => values = [bf16::from_f32(-1.0); GROUP],
            2 => values[3] = bf16::MAX,
            3 => values = values.map(|x| bf16::from_f32(x.to_f32() * 1e-33)),
            _ => {}
        }
        let (unit, expected) = defined_row(&values);
        let even_then_odd = (0..2).flat_map(|parity| expected.iter().skip(parity).step_by(2).copied());
        let even_then_odd: Vec<i64> = even_then_odd.collect();
        let sum = expected.iter().sum::<i64>() as f64 * unit;
        for isa in Isa::available() {
            let ((got_unit, got_sum), bytes) = isa.run(Round(&values));
            assert_eq!((f64::from(got_unit), f64::from(got_sum)), (unit, sum), "{isa}, block {block}");
            let (high, low) = bytes.split_at(GROUP);
            let got: Vec<i64> =
                high.iter().zip(low).map(|(&high, &low)| i64::from(HIGH) * i64::from(high) + i64::from(low)).collect();
            assert_eq!(got, even_then_odd, "{isa}, block {block}");
            assert!(bytes.iter().all(|byte| (-64..=64).contains(byte)), "{isa}, block {block}: {bytes:?}");
        }
    }
}

#[test]
fn what_is_no_number_stays_none_and_what_is_next_to_nothing_is_zero() {
    for isa in Isa::available() {
        for wrong in [bf16::INFINITY, bf16::NEG_INFINITY, bf16::NAN] {
            let mut values = [bf16::ONE; GROUP];
            values[17] = wrong;
            let ((unit, sum), bytes) = isa.run(Round(&values));
            assert!(unit.is_nan() && sum.is_nan() && bytes == [0; ROW_BYTES], "{isa}, {wrong}");
        }
        for small in [0.0, 2_f32.powi(-115), -2_f32.powi(-126)] {
            let ((unit, sum), bytes) = isa.run(Round(&[bf16::from_f32(small); GROUP]));
            assert_eq!((unit, sum, bytes), (0.0, 0.0, [0; ROW_BYTES]), "{isa}, {small}");
        }
        let ((unit, sum), _) = isa.run(Round(&[bf16::from_f32(2_f32.powi(-114)); GROUP]));
        assert_eq!((unit, sum), (2_f32.powi(-126), 2_f32.powi(-109)), "{isa}");
    }
}

/// A panel's rows of a file, with the largest and the smallest codes among others.
fn file_row(dtype: Dtype, row: usize) -> Vec<u8> {
    let values = (BLOCKS * GROUP).next_multiple_of(dtype.block_values());
    let byte = |i: usize| match (row, i % 5) {
        (0, _) => 0xff,
        (1, _) => 0x80,
        (2, 0) => 0x7f,
        _ => (noise(row * 7919 + i) >> 40) as u8,
    };
    let mut bytes: Vec<u8> = (0..dtype.bytes_of(values)).map(byte).collect();
    for block in bytes.chunks_mut(dtype.block_bytes()) {
        // Scales and minima between 2⁻⁷ and 2⁻⁶.
        block[1] = block[1] & 0x83 | 0x20;
        if !matches!(dtype, Dtype::Q4_0 | Dtype::Q5_0 | Dtype::Q8_0) {
            block[3] = block[3] & 0x83 | 0x20;
        }
    }
    bytes
}

/// In the order that is stated.
fn defined(rows: &[(f64, Vec<i64>)], groups: &[Group], dtype: Dtype, format: IntegerFormat) -> f32 {
    let (zero, signed) = (format.zero(), dtype == Dtype::Q8_0);
    let mut sum = 0.0_f32;
    for ((unit, q), group) in rows.iter().zip(groups) {
        let code = |k: usize| if signed { i64::from(group.codes[k] ^ 0x80) } else { i64::from(group.codes[k]) };
        let dot: i64 = (0..GROUP).map(|k| q[k] * code(k)).sum();
        sum = (dot as f32 * *unit as f32).mul_add(group.scale, sum);
        let minimum = if format.0.minima { group.minimum } else { -f32::from(zero) * group.scale };
        sum = minimum.mul_add((q.iter().sum::<i64>() as f64 * unit) as f32, sum);
    }
    sum
}

/// One product of two slices, and, where the machine has byte products, of few rows straight from the cells.
struct Products<'a> {
    rows: usize,
    left: &'a [bf16],
    format: IntegerFormat,
    cells: &'a [u8],
}

impl Kernel for Products<'_> {
    type Output = Vec<Vec<f32>>;

    #[inline(always)]
    fn run<L: Lanes>(self) -> Vec<Vec<f32>> {
        let mut whole = WholeRows::new(MAX_ROWS, BLOCKS * GROUP).unwrap();
        // SAFETY: all blocks of whole tiles of rows.
        unsafe { whole.round::<L>(&(0..self.rows), self.left.as_ptr(), BLOCKS) };
        let mut expanded = vec![Block::ZERO; BLOCKS];
        for (cell, block) in self.cells.chunks(self.format.cell_bytes()).zip(&mut expanded) {
            // SAFETY: a whole cell.
            unsafe { self.format.expand::<L>(cell.as_ptr(), block) };
        }
        let mut c = vec![7.0; (MAX_ROWS + 1) * LANES];
        let product = |slice: std::ops::Range<usize>, c: &mut Vec<f32>| IntegerProduct {
            rows: self.rows,
            blocks: slice.len(),
            left: whole.from(slice.start, BLOCKS),
            small_codes: self.format.has_small_codes(),
            c: c.as_mut_ptr(),
            c_stride: LANES,
            resume: slice.start > 0,
        };
        product(0..2, &mut c).run::<L>(&expanded[..2]);
        product(2..BLOCKS, &mut c).run::<L>(&expanded[2..]);
        #[cfg(target_arch = "x86_64")]
        if L::TABLE_BYTES == 64 && has_byte_products() && self.rows <= avx512::MOST_FROM_CELLS {
            let mut few = vec![7.0; c.len()];
            // SAFETY: the machine has the instructions; a whole panel.
            unsafe { avx512::from_cells(&product(0..BLOCKS, &mut few), self.format, self.cells.as_ptr()) };
            return vec![c, few];
        }
        vec![c]
    }
}

#[test]
fn every_route_gives_what_is_defined() {
    let tiles = MAX_ROWS.next_multiple_of(16) * BLOCKS * GROUP;
    let left: Vec<bf16> = (0..tiles).map(value).collect();
    let row_of = |row: usize| -> Vec<(f64, Vec<i64>)> {
        let block =
            |block: usize| (0..GROUP).map(|k| left[tile_index(row, block * GROUP + k, BLOCKS)]).collect::<Vec<_>>();
        (0..BLOCKS).map(|number| defined_row(&block(number))).collect()
    };
    for (dtype, format) in Dtype::ALL.into_iter().filter_map(|dtype| Some((dtype, IntegerFormat::of(dtype)?))) {
        let columns: Vec<Vec<Group>> = (0..LANES)
            .map(|column| file_row(dtype, column))
            .map(|row| (0..BLOCKS).map(|number| Group::read(dtype, &row, number).unwrap()).collect())
            .collect();
        let mut cells = vec![0; BLOCKS * format.cell_bytes()];
        for (column, groups) in columns.iter().enumerate() {
            for (cell, group) in cells.chunks_mut(format.cell_bytes()).zip(groups) {
                format.put(cell, column, group);
            }
        }
        for rows in [1, 2, 3, 4, 5, 6, 7, 12, MAX_ROWS] {
            for isa in Isa::available() {
                for (route, got) in isa.run(Products { rows, left: &left, format, cells: &cells }).iter().enumerate() {
                    for (i, got) in got.iter().enumerate() {
                        let (row, column) = (i / LANES, i % LANES);
                        let expected =
                            if row < rows { defined(&row_of(row), &columns[column], dtype, format) } else { 7.0 };
                        let place = format!("{rows} rows at ({row}, {column}), route {route}");
                        assert_eq!(got.to_bits(), expected.to_bits(), "{dtype} on {isa}: {place}");
                    }
                }
            }
        }
    }
}
