//! Tiles for machines that have AVX-512 but none of their own: for work on what surrounds them, and for every run of the
//! tests, sees the kernels that use them. Sums are taken in the order of `tdpbf16ps`.

use std::arch::x86_64::*;
use std::cell::{Cell, RefCell};

use half::bf16;

use super::registers::{Operands, ROW_BYTES, TILE_ROWS};

type Tile = [[f32; 16]; TILE_ROWS];

thread_local! {
    static IS_CONFIGURED: Cell<bool> = const { Cell::new(false) };
    static SUMS: RefCell<[Tile; 4]> = const { RefCell::new([[[f32::NAN; 16]; TILE_ROWS]; 4]) };
}

pub(super) fn in_use() -> bool {
    !super::available()
}

/// Configuring clears them, so that nothing stays from one kernel to the next.
pub(super) fn configure(yes: bool) {
    assert_ne!(IS_CONFIGURED.replace(yes), yes, "tiles are configured once");
    SUMS.set([[[f32::NAN; 16]; TILE_ROWS]; 4]);
}

fn with_sums<R>(work: impl FnOnce(&mut [Tile; 4]) -> R) -> R {
    assert!(IS_CONFIGURED.get(), "tiles are not configured");
    SUMS.with_borrow_mut(work)
}

/// (tile, its place in C).
fn places<const ROWS: usize, const COLUMNS: usize>(c_bytes: usize) -> impl Iterator<Item = (usize, usize)> {
    let place = move |row: usize, column| (2 * row + column, row * TILE_ROWS * c_bytes + column * ROW_BYTES);
    (0..ROWS).flat_map(move |row| (0..COLUMNS).map(move |column| place(row, column)))
}

/// # Safety
/// As of [`super::begin`].
pub(super) unsafe fn begin<const ROWS: usize, const COLUMNS: usize>(c: *const f32, c_bytes: usize, resume: bool) {
    with_sums(|sums| {
        if !resume {
            return sums.fill([[0.0; 16]; TILE_ROWS]);
        }
        for (tile, place) in places::<ROWS, COLUMNS>(c_bytes) {
            for (row, lanes) in sums[tile].iter_mut().enumerate() {
                // SAFETY: the caller's promise.
                *lanes = unsafe { c.byte_add(place + row * c_bytes).cast::<[f32; 16]>().read_unaligned() };
            }
        }
    });
}

/// # Safety
/// As of [`super::end`].
pub(super) unsafe fn end<const ROWS: usize, const COLUMNS: usize>(c: *mut f32, c_bytes: usize) {
    for (tile, place) in places::<ROWS, COLUMNS>(c_bytes) {
        // SAFETY: the caller's promise.
        unsafe { write(tile, c.byte_add(place), c_bytes) };
    }
}

/// # Safety
/// All rows of a tile are writable, `c_bytes` apart.
unsafe fn write(tile: usize, c: *mut f32, c_bytes: usize) {
    with_sums(|sums| {
        for (row, lanes) in sums[tile].iter().enumerate() {
            // SAFETY: the caller's promise.
            unsafe { c.byte_add(row * c_bytes).cast::<[f32; 16]>().write_unaligned(*lanes) };
        }
    });
}

/// # Safety
/// As of [`super::add`].
pub(super) unsafe fn add<const ROWS: usize, const COLUMNS: usize>(operands: &Operands) {
    let &Operands { left, left_tile_bytes, right, right_pair_bytes, right_panel_bytes, .. } = operands;
    with_sums(|sums| {
        for (row, column) in (0..ROWS).flat_map(|row| (0..COLUMNS).map(move |column| (row, column))) {
            // SAFETY: the caller's promise.
            unsafe {
                let (left, right) = (left.byte_add(row * left_tile_bytes), right.byte_add(column * right_panel_bytes));
                product(&mut sums[2 * row + column], left, right, right_pair_bytes);
            }
        }
    });
}

/// `tdpbf16ps`: one chain over the even k, one over the odd ones, and then both are added.
///
/// # Safety
/// 16 rows of the left-hand side, and 16 pairs of the right-hand side, `pair_bytes` apart, are readable.
unsafe fn product(sums: &mut Tile, left: *const bf16, right: *const bf16, pair_bytes: usize) {
    assert!(is_x86_feature_detected!("avx512f"));
    // SAFETY: the caller's promise, and the machine has AVX-512.
    unsafe { product_in_lanes(sums, left, right, pair_bytes) };
}

/// # Safety
/// As above.
#[target_feature(enable = "avx512f")]
unsafe fn product_in_lanes(sums: &mut Tile, left: *const bf16, right: *const bf16, pair_bytes: usize) {
    // SAFETY: the caller's promise.
    let word = |row: usize, pair: usize| unsafe { left.cast::<u32>().add(row * ROW_BYTES / 4 + pair).read_unaligned() };
    for (row, sums) in sums.iter_mut().enumerate() {
        let (mut even, mut odd) = (_mm512_setzero_ps(), _mm512_setzero_ps());
        for pair in 0..ROW_BYTES / 4 {
            // SAFETY: the caller's promise.
            let columns = unsafe { _mm512_loadu_si512(right.byte_add(pair * pair_bytes).cast()) };
            let even_columns = _mm512_castsi512_ps(_mm512_slli_epi32::<16>(columns));
            let odd_columns = _mm512_castsi512_ps(_mm512_and_si512(columns, _mm512_set1_epi32(0xffff_0000_u32 as i32)));
            let both = word(row, pair);
            even = _mm512_fmadd_ps(_mm512_set1_ps(f32::from_bits(both << 16)), even_columns, even);
            odd = _mm512_fmadd_ps(_mm512_set1_ps(f32::from_bits(both & 0xffff_0000)), odd_columns, odd);
        }
        // SAFETY: 16 lanes.
        unsafe {
            let sum = _mm512_add_ps(_mm512_loadu_ps(sums.as_ptr()), _mm512_add_ps(even, odd));
            _mm512_storeu_ps(sums.as_mut_ptr(), sum);
        }
    }
}
