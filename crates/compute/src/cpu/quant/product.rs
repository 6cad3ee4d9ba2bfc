//! Rows times one panel of cells.

#![allow(
    clippy::needless_range_loop,
    reason = "rows, pairs and lanes are numbers here; indexed loops unroll into registers"
)]

use half::bf16;

use super::format::{CodeWidth, Format, GROUP};
#[cfg(target_arch = "x86_64")]
use super::many_rows::many_rows;
use crate::cpu::isa::Kernel;
use crate::cpu::lanes::{LANES, Lanes};
use crate::cpu::pairs::{TILE, TILE_ROWS};

/// C\[rows × 16\] = A · (scale · codes + minimum), or C += when it goes on where an earlier slice of k has ended.
#[derive(Clone, Copy)]
pub(super) struct CellProduct {
    pub(super) rows: usize,
    /// Cells.
    pub(super) blocks: usize,
    /// In tile order.
    pub(super) a: *const bf16,
    /// From 16 rows to the next 16.
    pub(super) a_tile_stride: usize,
    pub(super) format: Format,
    pub(super) cells: *const u8,
    /// The codes of all blocks as tiles; `None` for eight bits, which few rows read from the cells.
    pub(super) codes: Option<*const bf16>,
    /// Memory that tiles ask for on the way, as much as the product's cells take. Nobody reads it: it may lie anywhere.
    pub(super) ahead: Option<*const u8>,
    /// `[block][row of a tile]`: sums of 32 values of A; read if there are minima.
    pub(super) sums: *const f32,
    pub(super) sums_tile_stride: usize,
    pub(super) c: *mut f32,
    pub(super) c_stride: usize,
    pub(super) resume: bool,
}

/// So many are as fast in vector registers as in tiles, or faster.
pub(super) const FEW_ROWS: usize = 2;

pub(super) const PAIRS: usize = GROUP / 2;
/// Cells stream from memory.
const PREFETCH_BYTES: usize = 4 << 10;

/// Pointers in a product are good for the shapes it states: whoever makes one says why.
impl Kernel for CellProduct {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self) {
        #[cfg(target_arch = "x86_64")]
        if let (true, Some(codes)) = (L::TILES && self.rows > FEW_ROWS, self.codes) {
            // SAFETY: below `Isa::run`, which has configured the tiles; A and the codes hold whole ones.
            return unsafe {
                match self.rows {
                    ..=4 => many_rows::<4>(&self, codes),
                    5..=8 => many_rows::<8>(&self, codes),
                    _ => many_rows::<16>(&self, codes),
                }
            };
        }
        for tile in 0..self.rows.div_ceil(TILE_ROWS) {
            let of_tile = self.tile(tile);
            let mut row = 0;
            while row < of_tile.rows {
                row += match of_tile.rows - row {
                    2.. => of_tile.chains::<L, 2>(row),
                    _ => of_tile.chains::<L, 1>(row),
                };
            }
        }
    }
}

impl CellProduct {
    /// One tile of rows.
    #[inline(always)]
    fn tile(&self, tile: usize) -> Self {
        // SAFETY: inside A, its sums, and C.
        unsafe {
            Self {
                rows: TILE_ROWS.min(self.rows - tile * TILE_ROWS),
                a: self.a.add(tile * self.a_tile_stride),
                sums: self.sums.add(tile * self.sums_tile_stride),
                c: self.c.add(tile * TILE_ROWS * self.c_stride),
                ..*self
            }
        }
    }

    /// `R` rows from `row` on: both chains of a block in registers.
    #[inline(always)]
    fn chains<L: Lanes, const R: usize>(&self, row: usize) -> usize {
        let mut sums = [L::splat(0.0); R];
        self.resume(row, &mut sums);
        for block in 0..self.blocks {
            let cell = self.cell(block);
            L::prefetch(cell.wrapping_add(PREFETCH_BYTES));
            let mut x = [[0.0; GROUP]; R];
            for r in 0..R {
                // SAFETY: 32 k of a row of A; half of them fit.
                unsafe {
                    let from = self.a.add(block * TILE + (row + r) * GROUP).cast();
                    L::load_bf16_even(from).store(x[r].as_mut_ptr());
                    L::load_bf16_odd(from).store(x[r].as_mut_ptr().add(PAIRS));
                }
            }
            let mut even = [L::splat(0.0); R];
            let mut odd = [L::splat(0.0); R];
            for pair in 0..PAIRS {
                let (codes_even, codes_odd) = self.pair::<L>(block, cell, pair);
                for r in 0..R {
                    even[r] = L::splat(x[r][pair]).fma(codes_even, even[r]);
                    odd[r] = L::splat(x[r][PAIRS + pair]).fma(codes_odd, odd[r]);
                }
            }
            // From zero, as tiles begin.
            self.scale(block, row, |r| L::splat(0.0).add(even[r].add(odd[r])), &mut sums);
        }
        self.store(row, &sums);
        R
    }

    #[inline(always)]
    fn pair<L: Lanes>(&self, block: usize, cell: *const u8, pair: usize) -> (L, L) {
        // SAFETY: a pair of 16 codes, in the cell or among the expanded ones.
        unsafe {
            match self.codes {
                Some(codes) => {
                    let words = codes.add(block * TILE + pair * 2 * LANES).cast();
                    (L::load_bf16_even(words), L::load_bf16_odd(words))
                }
                None => {
                    debug_assert!(self.format.width == CodeWidth::Eight);
                    let bytes = cell.add(pair * 2 * LANES).cast();
                    (L::load_i8(bytes), L::load_i8(bytes.add(LANES)))
                }
            }
        }
    }

    /// Adds a block's products of rows from `row` on.
    #[inline(always)]
    fn scale<L: Lanes, const R: usize>(&self, block: usize, row: usize, dot: impl Fn(usize) -> L, sums: &mut [L; R]) {
        let format = self.format;
        // SAFETY: behind the codes of a cell are its scales, and behind them its minima.
        let (scale, minimum) = unsafe {
            let scales = self.cell(block).add(format.code_bytes());
            let minima = format.minima.then(|| format.sixteen::<L>(scales.add(format.scale_bytes())));
            (format.sixteen::<L>(scales), minima)
        };
        for r in 0..R {
            sums[r] = dot(r).fma(scale, sums[r]);
            if let Some(minimum) = minimum {
                // SAFETY: sums of a whole tile of rows.
                let sum = L::splat(unsafe { *self.sums.add(block * TILE_ROWS + row + r) });
                sums[r] = minimum.fma(sum, sums[r]);
            }
        }
    }

    #[inline(always)]
    fn cell(&self, block: usize) -> *const u8 {
        self.cells.wrapping_add(block * self.format.cell_bytes())
    }

    #[inline(always)]
    fn resume<L: Lanes, const R: usize>(&self, row: usize, sums: &mut [L; R]) {
        if self.resume {
            for r in 0..R.min(self.rows - row) {
                // SAFETY: a row of C.
                sums[r] = unsafe { L::load(self.c.add((row + r) * self.c_stride)) };
            }
        }
    }

    #[inline(always)]
    fn store<L: Lanes, const R: usize>(&self, row: usize, sums: &[L; R]) {
        for r in 0..R.min(self.rows - row) {
            // SAFETY: a row of C.
            unsafe { sums[r].store(self.c.add((row + r) * self.c_stride)) };
        }
    }
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use baton_model::Dtype;

    use super::super::blocks::{CellBlocks, PanelCells};
    use super::super::cell::Tile;
    use super::super::expand::expand;
    use super::super::few_rows::few_rows;
    use super::super::group::Group;
    use super::*;
    use crate::cpu::isa::Isa;
    use crate::cpu::pairs::tile_index;

    const BLOCKS: usize = 3;
    const MAX_ROWS: usize = 3 * TILE_ROWS;

    fn noise(i: usize) -> u64 {
        (i as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(23).wrapping_mul(0xd134_2543_de82_ef95)
    }

    /// Sixteen rows of blocks with small scales.
    fn file_rows(dtype: Dtype) -> Vec<Vec<u8>> {
        let row = |row: usize| {
            let values = (BLOCKS * GROUP).next_multiple_of(dtype.block_values());
            let mut bytes: Vec<u8> = (0..dtype.bytes_of(values)).map(|i| (noise(row * 7919 + i) >> 40) as u8).collect();
            for block in bytes.chunks_mut(dtype.block_bytes()) {
                block[1] = block[1] & 0x87 | 0x20;
                if Format::of(dtype).is_some_and(|format| format.minima) {
                    block[3] = block[3] & 0x87 | 0x20;
                }
            }
            bytes
        };
        (0..LANES).map(row).collect()
    }

    struct HasWordTables;

    impl Kernel for HasWordTables {
        type Output = bool;

        #[inline(always)]
        fn run<L: Lanes>(self) -> bool {
            L::WORD_TABLES
        }
    }

    struct Expand<'a>(Format, *const u8, &'a mut Tile);

    impl Kernel for Expand<'_> {
        type Output = ();

        #[inline(always)]
        fn run<L: Lanes>(self) {
            // SAFETY: a whole cell.
            unsafe { expand::<L>(self.0, &self.0.table(), self.1, self.2) };
        }
    }

    /// `[block][row][even k, then odd k]`
    fn widened(tiles: &[bf16], rows: usize) -> Vec<f32> {
        let places = (0..BLOCKS * rows * GROUP).map(|i| (i / GROUP / rows, i / GROUP % rows, i % GROUP));
        let k = |i: usize| i % PAIRS * 2 + i / PAIRS;
        places.map(|(block, row, i)| tiles[block * TILE + row * GROUP + k(i)].to_f32()).collect()
    }

    /// The definition, in the order that it states.
    fn defined(x: &[bf16], groups: &[Group], zero: f32, signed: bool, minima: bool) -> f32 {
        let mut sum = 0.0_f32;
        for (x, group) in x.chunks(GROUP).zip(groups) {
            let (mut chains, mut ones) = ([0.0_f32; 2], [0.0_f32; 2]);
            for k in 0..GROUP {
                let code = if signed { f32::from(group.codes[k] as i8) } else { f32::from(group.codes[k]) - zero };
                chains[k % 2] = x[k].to_f32().mul_add(code, chains[k % 2]);
                ones[k % 2] = x[k].to_f32().mul_add(1.0, ones[k % 2]);
            }
            sum = (chains[0] + chains[1]).mul_add(group.scale, sum);
            if minima {
                sum = group.minimum.mul_add(ones[0] + ones[1], sum);
            }
        }
        sum
    }

    #[test]
    fn every_route_gives_what_is_defined() {
        let x: Vec<bf16> = (0..MAX_ROWS * BLOCKS * GROUP)
            .map(|i| bf16::from_f32((noise(i) >> 40) as f32 / (1 << 23) as f32 - 1.0))
            .collect();
        let row_of = |row: usize| -> Vec<bf16> { (0..BLOCKS * GROUP).map(|k| x[tile_index(row, k, BLOCKS)]).collect() };
        // `[tile of rows][block][row]`
        let mut sums = [0.0; MAX_ROWS * BLOCKS];
        for (i, sum) in sums.iter_mut().enumerate() {
            let (row, block) = (i / TILE_ROWS / BLOCKS * TILE_ROWS + i % TILE_ROWS, i / TILE_ROWS % BLOCKS);
            let row = &row_of(row)[block * GROUP..][..GROUP];
            let chain = |parity| row.iter().skip(parity).step_by(2).fold(0.0, |sum, x| sum + x.to_f32());
            *sum = chain(0) + chain(1);
        }
        for dtype in Dtype::ALL.into_iter().filter(|dtype| Format::of(*dtype).is_some()) {
            let format = Format::of(dtype).unwrap();
            let rows = file_rows(dtype);
            let groups: Vec<Vec<Group>> = rows
                .iter()
                .map(|row| (0..BLOCKS).map(|block| Group::read(dtype, row, block).unwrap()).collect())
                .collect();
            let mut cells = vec![0; BLOCKS * format.cell_bytes()];
            let mut reversed = cells.clone();
            for (column, groups) in groups.iter().enumerate() {
                for (cells, column) in [(&mut cells, column), (&mut reversed, LANES - 1 - column)] {
                    for (cell, group) in cells.chunks_mut(format.cell_bytes()).zip(groups) {
                        format.put(cell, column, group);
                    }
                }
            }
            let signed = format.width == CodeWidth::Eight;
            let product = |rows, codes, c: &mut [f32]| CellProduct {
                rows,
                blocks: BLOCKS,
                a: x.as_ptr(),
                a_tile_stride: BLOCKS * TILE,
                format,
                cells: cells.as_ptr(),
                codes,
                ahead: Some(cells.as_ptr()),
                sums: sums.as_ptr(),
                sums_tile_stride: BLOCKS * TILE_ROWS,
                c: c.as_mut_ptr(),
                c_stride: LANES,
                resume: false,
            };
            for isa in Isa::available() {
                let mut tiles = Box::new([[bf16::ZERO; TILE]; BLOCKS]);
                for (cell, tile) in cells.chunks(format.cell_bytes()).zip(&mut *tiles) {
                    isa.run(Expand(format, cell.as_ptr(), tile));
                }
                let expanded = Some(tiles.as_ptr().cast::<bf16>());
                if isa.run(HasWordTables) {
                    for rows in 1..=FEW_ROWS {
                        let mut c = [7.0; FEW_ROWS * LANES];
                        let product = product(rows, None, &mut c);
                        let wide = widened(&x, rows);
                        // SAFETY: the machine has what the instruction set says; shapes are as stated.
                        unsafe {
                            match rows {
                                1 => few_rows::<1>(&product, wide.as_ptr(), &format.table()),
                                _ => few_rows::<FEW_ROWS>(&product, wide.as_ptr(), &format.table()),
                            }
                        }
                        for (i, &got) in c[..rows * LANES].iter().enumerate() {
                            let (row, column) = (i / LANES, i % LANES);
                            let zero = f32::from(format.zero);
                            let expected = defined(&row_of(row), &groups[column], zero, signed, format.minima);
                            assert_eq!(
                                got.to_bits(),
                                expected.to_bits(),
                                "{dtype}, from codes: {rows} rows at ({row}, {column})"
                            );
                        }
                    }
                }
                for rows in [1, 3, 8, 17, 48] {
                    let mut c = [7.0; MAX_ROWS * 2 * LANES];
                    let (table, panels) = (format.table(), [cells.as_ptr(), reversed.as_ptr()]);
                    isa.run(CellBlocks {
                        rows,
                        blocks: BLOCKS,
                        a: x.as_ptr(),
                        a_tile_stride: BLOCKS * TILE,
                        panels: panels.map(|cells| PanelCells { format, table: &table, cells }),
                        sums: sums.as_ptr(),
                        sums_tile_stride: BLOCKS * TILE_ROWS,
                        c: c.as_mut_ptr(),
                        c_stride: 2 * LANES,
                    });
                    for (i, &got) in c.iter().enumerate() {
                        let (row, panel, column) = (i / LANES / 2, i / LANES % 2, i % LANES);
                        let column = if panel == 0 { column } else { LANES - 1 - column };
                        let zero = f32::from(format.zero);
                        let expected = if row < rows {
                            defined(&row_of(row), &groups[column], zero, signed, format.minima)
                        } else {
                            7.0
                        };
                        let place = format!("{rows} rows at ({row}, {column})");
                        assert_eq!(got.to_bits(), expected.to_bits(), "{dtype} on {isa}, in blocks: {place}");
                    }
                }
                for (rows, codes) in [1, 2, 3, 4, 5, 8, 9, 15, 16, 17, 31, 40, 48]
                    .into_iter()
                    .flat_map(|rows| [(rows, expanded), (rows, None)])
                {
                    if codes.is_none() && !signed {
                        continue;
                    }
                    let mut c = [7.0; MAX_ROWS * LANES];
                    let whole = product(rows, codes, &mut c);
                    isa.run(CellProduct { blocks: 1, ..whole });
                    // SAFETY: behind the first cell.
                    isa.run(unsafe {
                        CellProduct {
                            blocks: BLOCKS - 1,
                            a: whole.a.add(TILE),
                            cells: whole.cells.add(format.cell_bytes()),
                            codes: codes.map(|codes| codes.add(TILE)),
                            sums: whole.sums.add(TILE_ROWS),
                            resume: true,
                            ..whole
                        }
                    });
                    for (i, &got) in c.iter().enumerate() {
                        let (row, column) = (i / LANES, i % LANES);
                        let expected = if row < rows {
                            let zero = f32::from(format.zero);
                            defined(&row_of(row), &groups[column], zero, signed, format.minima)
                        } else {
                            7.0
                        };
                        assert_eq!(
                            got.to_bits(),
                            expected.to_bits(),
                            "{dtype} on {isa}: {rows} rows at ({row}, {column})"
                        );
                    }
                }
            }
        }
    }
}
