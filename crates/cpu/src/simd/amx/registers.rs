//! What is done with tile registers.

use std::arch::asm;

use half::bf16;

#[cfg(test)]
use super::emulated;
use crate::simd::prefetch::{Pages, Prefetch, Streamed};

/// Bytes of one row of a tile.
pub(super) const ROW_BYTES: usize = 64;
pub(super) const TILE_ROWS: usize = 16;

/// Tests run where there are no tiles, too.
macro_rules! or_emulated {
    ($emulated:expr) => {
        #[cfg(test)]
        if emulated::in_use() {
            // SAFETY: the same promise.
            return unsafe { $emulated };
        }
    };
}

/// One block of 32 k.
#[derive(Clone, Copy)]
pub(crate) struct Operands {
    pub(crate) left: *const bf16,
    /// From 16 rows to the next 16.
    pub(crate) left_tile_bytes: usize,
    pub(crate) right: *const bf16,
    /// From one pair of k to the next.
    pub(crate) right_pair_bytes: usize,
    /// From 16 columns to the next 16.
    pub(crate) right_panel_bytes: usize,
    /// Matters to 2 × 2 tiles only.
    pub(crate) streamed: Streamed,
}

macro_rules! tile {
    ($instruction:literal, $($operand:tt)*) => {
        asm!($instruction, $($operand)*, options(nostack, preserves_flags))
    };
}

/// Sums of `ROWS` × `COLUMNS` tiles begin at zero, or resume what `c` holds.
///
/// # Safety
/// Tiles are configured. To resume, all tiles of `c` are readable; its rows are `c_bytes` apart.
#[inline(always)]
pub(crate) unsafe fn begin<const ROWS: usize, const COLUMNS: usize>(c: *const f32, c_bytes: usize, resume: bool) {
    or_emulated!(emulated::begin::<ROWS, COLUMNS>(c, c_bytes, resume));
    // SAFETY: the caller's promise.
    unsafe {
        if !resume {
            asm!("tilezero tmm0", "tilezero tmm1", "tilezero tmm2", "tilezero tmm3", options(nostack, preserves_flags));
            return;
        }
        let below = if ROWS == 2 { c.byte_add(TILE_ROWS * c_bytes) } else { c };
        tile!("tileloadd tmm0, [{c} + {s}]", c = in(reg) c, s = in(reg) c_bytes);
        if COLUMNS == 2 {
            tile!("tileloadd tmm1, [{c} + {s} + 64]", c = in(reg) c, s = in(reg) c_bytes);
        }
        if ROWS == 2 {
            tile!("tileloadd tmm2, [{c} + {s}]", c = in(reg) below, s = in(reg) c_bytes);
        }
        if ROWS == 2 && COLUMNS == 2 {
            tile!("tileloadd tmm3, [{c} + {s} + 64]", c = in(reg) below, s = in(reg) c_bytes);
        }
    }
}

/// Writes the sums to `c`.
///
/// # Safety
/// Tiles are configured; all tiles of `c` are writable, its rows are `c_bytes` apart.
#[inline(always)]
pub(crate) unsafe fn end<const ROWS: usize, const COLUMNS: usize>(c: *mut f32, c_bytes: usize) {
    or_emulated!(emulated::end::<ROWS, COLUMNS>(c, c_bytes));
    // SAFETY: the caller's promise.
    unsafe {
        let below = if ROWS == 2 { c.byte_add(TILE_ROWS * c_bytes) } else { c };
        tile!("tilestored [{c} + {s}], tmm0", c = in(reg) c, s = in(reg) c_bytes);
        if COLUMNS == 2 {
            tile!("tilestored [{c} + {s} + 64], tmm1", c = in(reg) c, s = in(reg) c_bytes);
        }
        if ROWS == 2 {
            tile!("tilestored [{c} + {s}], tmm2", c = in(reg) below, s = in(reg) c_bytes);
        }
        if ROWS == 2 && COLUMNS == 2 {
            tile!("tilestored [{c} + {s} + 64], tmm3", c = in(reg) below, s = in(reg) c_bytes);
        }
    }
}

/// Sums of 2 × 2 tiles += left · right. `tileloaddt1` does what `tileloadd` does, and hints that these lines need
/// not stay near.
macro_rules! two_by_two {
    ($operands:expr, $load_left:literal, $load_right:literal) => {{
        let operands: &Operands = $operands;
        asm!(
            concat!($load_left, " tmm4, [{a} + {row}]"),
            concat!($load_right, " tmm6, [{b} + {pair}]"),
            "tdpbf16ps tmm0, tmm4, tmm6",
            concat!($load_left, " tmm5, [{a_below} + {row}]"),
            "tdpbf16ps tmm2, tmm5, tmm6",
            concat!($load_right, " tmm7, [{b_right} + {pair}]"),
            "tdpbf16ps tmm1, tmm4, tmm7",
            "tdpbf16ps tmm3, tmm5, tmm7",
            a = in(reg) operands.left,
            a_below = in(reg) operands.left.byte_add(operands.left_tile_bytes),
            b = in(reg) operands.right,
            b_right = in(reg) operands.right.byte_add(operands.right_panel_bytes),
            row = in(reg) ROW_BYTES,
            pair = in(reg) operands.right_pair_bytes,
            options(nostack, preserves_flags),
        )
    }};
}

/// Sums += left · right.
///
/// # Safety
/// Tiles are configured, and `operands` are readable for `ROWS` × `COLUMNS` tiles.
#[inline(always)]
pub(crate) unsafe fn add<const ROWS: usize, const COLUMNS: usize>(operands: &Operands) {
    or_emulated!(emulated::add::<ROWS, COLUMNS>(operands));
    let &Operands { left, right, right_pair_bytes, right_panel_bytes, .. } = operands;
    // SAFETY: the caller's promise.
    unsafe {
        match (ROWS, COLUMNS) {
            (2, 2) => match operands.streamed {
                Streamed::Neither => two_by_two!(operands, "tileloadd", "tileloadd"),
                Streamed::Left => two_by_two!(operands, "tileloaddt1", "tileloadd"),
                Streamed::Right => two_by_two!(operands, "tileloadd", "tileloaddt1"),
                Streamed::Both => two_by_two!(operands, "tileloaddt1", "tileloaddt1"),
            },
            (1, 2) => asm!(
                "tileloadd tmm4, [{a} + {row}]",
                "tileloadd tmm6, [{b} + {pair}]",
                "tileloadd tmm7, [{b_right} + {pair}]",
                "tdpbf16ps tmm0, tmm4, tmm6",
                "tdpbf16ps tmm1, tmm4, tmm7",
                a = in(reg) left,
                b = in(reg) right,
                b_right = in(reg) right.byte_add(right_panel_bytes),
                row = in(reg) ROW_BYTES,
                pair = in(reg) right_pair_bytes,
                options(nostack, preserves_flags),
            ),
            _ => asm!(
                "tileloadd tmm4, [{a} + {row}]",
                "tileloadd tmm6, [{b} + {pair}]",
                "tdpbf16ps tmm0, tmm4, tmm6",
                a = in(reg) left,
                b = in(reg) right,
                row = in(reg) ROW_BYTES,
                pair = in(reg) right_pair_bytes,
                options(nostack, preserves_flags),
            ),
        }
    }
}

macro_rules! prefetch {
    (far first) => {
        "prefetcht1 [{first}]"
    };
    (far $at:literal) => {
        concat!("prefetcht1 [{rest} + ", $at, "]")
    };
    (near $at:literal) => {
        concat!("prefetcht0 [{near} + ", $at, "]")
    };
}

macro_rules! many_two_by_two {
    ($operands:expr, $blocks:expr, $prefetch:expr, $load_left:literal, $load_right:literal) => {
        match ($prefetch.far.first.is_null(), $prefetch.near.is_null()) {
            (true, true) => many_two_by_two!($operands, $blocks, $prefetch, $load_left, $load_right, [], []),
            (false, true) => many_two_by_two!($operands, $blocks, $prefetch, $load_left, $load_right, [far], []),
            (true, false) => many_two_by_two!($operands, $blocks, $prefetch, $load_left, $load_right, [], [near]),
            (false, false) => many_two_by_two!($operands, $blocks, $prefetch, $load_left, $load_right, [far], [near]),
        }
    };
    (
        $operands:expr, $blocks:expr, $prefetch:expr,
        $load_left:literal, $load_right:literal, [$($far:ident)?], [$($near:ident)?]
    ) => {{
        let (operands, prefetch): (&Operands, &mut Prefetch) = ($operands, $prefetch);
        let Prefetch { far: Pages { mut first, mut rest, mut blocks }, mut near } = *prefetch;
        asm!(
            "2:",
            concat!($load_left, " tmm4, [{a} + {row}]"),
            $(prefetch!($near 0),)?
            concat!($load_right, " tmm6, [{b} + {row}]"),
            $(prefetch!($far first),)?
            "tdpbf16ps tmm0, tmm4, tmm6",
            $(prefetch!($near 64),)?
            concat!($load_left, " tmm5, [{a_below} + {row}]"),
            $(prefetch!($far 0),)?
            "tdpbf16ps tmm2, tmm5, tmm6",
            $(prefetch!($near 128),)?
            concat!($load_right, " tmm7, [{b_right} + {row}]"),
            $(prefetch!($far 64),)?
            "tdpbf16ps tmm1, tmm4, tmm7",
            $(prefetch!($near 192),)?
            $(prefetch!($far 128),)?
            "tdpbf16ps tmm3, tmm5, tmm7",
            "add {near}, {near_bytes}",
            "add {first}, {first_bytes}",
            "add {rest}, {rest_bytes}",
            "dec {page}",
            "jnz 3f",
            "mov {rest}, {first}",
            "add {first}, {to_next_page}",
            "mov {page}, {page_blocks}",
            "3:",
            "add {a}, 1024",
            "add {a_below}, 1024",
            "add {b}, 1024",
            "add {b_right}, 1024",
            "dec {left}",
            "jnz 2b",
            a = inout(reg) operands.left => _,
            a_below = inout(reg) operands.left.byte_add(operands.left_tile_bytes) => _,
            b = inout(reg) operands.right => _,
            b_right = inout(reg) operands.right.byte_add(operands.right_panel_bytes) => _,
            left = inout(reg) $blocks => _,
            row = in(reg) ROW_BYTES,
            first = inout(reg) first,
            rest = inout(reg) rest,
            page = inout(reg) blocks,
            near = inout(reg) near,
            near_bytes = const Prefetch::NEAR_BYTES,
            first_bytes = const Pages::FIRST_BYTES,
            rest_bytes = const Pages::REST_BYTES,
            to_next_page = const Pages::BYTES - Pages::BLOCKS * Pages::FIRST_BYTES,
            page_blocks = const Pages::BLOCKS,
            options(nostack),
        );
        *prefetch = Prefetch { far: Pages { first, rest, blocks }, near };
    }};
}

/// [`add`] of 2 × 2 tiles for some blocks that follow each other on both sides, with prefetches on the way.
///
/// # Safety
/// As of [`add`]; there is at least one block, and pairs of k are [`ROW_BYTES`] apart on the right.
#[inline(always)]
pub(crate) unsafe fn add_many(operands: &Operands, blocks: usize, prefetch: &mut Prefetch) {
    debug_assert!(blocks > 0 && operands.right_pair_bytes == ROW_BYTES);
    or_emulated!({
        for block in 0..blocks {
            let to_block = block * TILE_ROWS * ROW_BYTES;
            let (left, right) = (operands.left.byte_add(to_block), operands.right.byte_add(to_block));
            emulated::add::<2, 2>(&Operands { left, right, ..*operands });
            prefetch.step();
        }
    });
    // SAFETY: the caller's promise.
    unsafe {
        match operands.streamed {
            // It is a hint, and such operands do not occur.
            Streamed::Neither | Streamed::Right => {
                many_two_by_two!(operands, blocks, prefetch, "tileloadd", "tileloadd")
            }
            Streamed::Left => many_two_by_two!(operands, blocks, prefetch, "tileloaddt1", "tileloadd"),
            Streamed::Both => many_two_by_two!(operands, blocks, prefetch, "tileloaddt1", "tileloaddt1"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simd::amx::{Configured, available};

    /// What is emulated elsewhere, where there are tiles.
    #[test]
    fn prefetches_move_on_as_emulated() {
        if !available() {
            return;
        }
        let operand = vec![bf16::ZERO; 64 * 512];
        let operand = operand.as_ptr();
        // SAFETY: tiles are there, and so are two tiles of rows, and two panels, of 20 blocks.
        unsafe {
            let _configured = Configured::enter();
            begin::<2, 2>(std::ptr::null(), 0, false);
            for (far, near, blocks) in
                [(true, true, 1), (true, false, 5), (false, true, 16), (true, true, 20), (false, false, 3)]
            {
                let page = |page: usize| {
                    if far { std::ptr::without_provenance(page * Pages::BYTES) } else { std::ptr::null() }
                };
                let near = if near { operand.cast() } else { std::ptr::null() };
                let mut prefetch = Prefetch { far: Pages { first: page(9), rest: page(7), blocks: 3 }, near };
                let mut expected = prefetch;
                let operands = Operands {
                    left: operand,
                    left_tile_bytes: 20 * TILE_ROWS * ROW_BYTES,
                    right: operand,
                    right_pair_bytes: ROW_BYTES,
                    right_panel_bytes: 20 * TILE_ROWS * ROW_BYTES,
                    streamed: Streamed::Left,
                };
                add_many(&operands, blocks, &mut prefetch);
                (0..blocks).for_each(|_| expected.step());
                assert_eq!((prefetch.far, prefetch.near), (expected.far, expected.near), "{blocks} blocks");
            }
        }
    }
}
