//! What is done with tile registers.

use std::arch::asm;

use half::bf16;

#[cfg(test)]
use super::emulated;
use crate::cpu::pairs::Passing;

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

/// Operands of [`add`]. Blocks of 32 k follow each other: 1 KiB apart on the left, 16 pairs apart on the right.
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
    pub(crate) blocks: usize,
    pub(crate) passing: Passing,
    /// By 2 × 2 tiles, unless only what is on the right passes.
    pub(crate) asking: Asking,
}

/// For cache lines, one after the other: how many with each block, and from where on.
#[derive(Clone, Copy)]
pub(crate) enum Asking {
    Nothing,
    Slowly(*const bf16),
    Quickly(*const bf16),
}

impl Asking {
    pub(crate) const SLOW_BYTES: usize = 2 * 64;
    pub(crate) const QUICK_BYTES: usize = 6 * 64;
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
        let below = c.byte_add(TILE_ROWS * c_bytes);
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
        let below = c.byte_add(TILE_ROWS * c_bytes);
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

/// Sums of 2 × 2 tiles += left · right. `tileloaddt1` does what `tileloadd` does, and tells the machine that these lines need
/// not stay near.
macro_rules! two_by_two {
    ($operands:expr, $load_left:literal, $load_right:literal) => {
        // Any address: nothing is asked for.
        two_by_two!($operands, $load_left, $load_right, $operands.left, 0, [], [])
    };
    ($operands:expr, $load_left:literal, $load_right:literal, slowly $ahead:expr) => {
        two_by_two!($operands, $load_left, $load_right, $ahead, Asking::SLOW_BYTES, [0 64], [])
    };
    ($operands:expr, $load_left:literal, $load_right:literal, quickly $ahead:expr) => {
        two_by_two!($operands, $load_left, $load_right, $ahead, Asking::QUICK_BYTES, [0 64 128], [192 256 320])
    };
    (
        $operands:expr, $load_left:literal, $load_right:literal,
        $ahead:expr, $asked:expr, [$($line:literal)*], [$($other_line:literal)*]
    ) => {{
        let operands: &Operands = $operands;
        asm!(
            "2:",
            concat!($load_left, " tmm4, [{a} + {row}]"),
            concat!($load_right, " tmm6, [{b} + {pair}]"),
            "tdpbf16ps tmm0, tmm4, tmm6",
            concat!($load_left, " tmm5, [{a_below} + {row}]"),
            $(concat!("prefetcht1 [{ahead} + ", $line, "]"),)*
            "tdpbf16ps tmm2, tmm5, tmm6",
            concat!($load_right, " tmm7, [{b_right} + {pair}]"),
            $(concat!("prefetcht1 [{ahead} + ", $other_line, "]"),)*
            "tdpbf16ps tmm1, tmm4, tmm7",
            "tdpbf16ps tmm3, tmm5, tmm7",
            "add {ahead}, {asked}",
            "add {a}, 1024",
            "add {a_below}, 1024",
            "add {b}, {block}",
            "add {b_right}, {block}",
            "dec {left}",
            "jnz 2b",
            a = inout(reg) operands.left => _,
            a_below = inout(reg) operands.left.byte_add(operands.left_tile_bytes) => _,
            b = inout(reg) operands.right => _,
            b_right = inout(reg) operands.right.byte_add(operands.right_panel_bytes) => _,
            left = inout(reg) operands.blocks => _,
            row = in(reg) ROW_BYTES,
            pair = in(reg) operands.right_pair_bytes,
            block = in(reg) TILE_ROWS * operands.right_pair_bytes,
            ahead = inout(reg) $ahead => _,
            asked = const $asked,
            options(nostack),
        )
    }};
}

/// Sums += left · right.
///
/// # Safety
/// Tiles are configured, `operands` are readable for `ROWS` × `COLUMNS` tiles, and there is at least one block.
#[inline(always)]
pub(crate) unsafe fn add<const ROWS: usize, const COLUMNS: usize>(operands: &Operands) {
    or_emulated!(emulated::add::<ROWS, COLUMNS>(operands));
    let &Operands { left, right, right_pair_bytes, right_panel_bytes, blocks, .. } = operands;
    let right_block_bytes = TILE_ROWS * right_pair_bytes;
    // SAFETY: the caller's promise.
    unsafe {
        match (ROWS, COLUMNS) {
            (2, 2) => match (operands.passing, operands.asking) {
                (Passing::Neither, Asking::Nothing) => two_by_two!(operands, "tileloadd", "tileloadd"),
                (Passing::Neither, Asking::Slowly(from)) => {
                    two_by_two!(operands, "tileloadd", "tileloadd", slowly from)
                }
                (Passing::Neither, Asking::Quickly(from)) => {
                    two_by_two!(operands, "tileloadd", "tileloadd", quickly from)
                }
                (Passing::Left, Asking::Nothing) => two_by_two!(operands, "tileloaddt1", "tileloadd"),
                (Passing::Left, Asking::Slowly(from)) => two_by_two!(operands, "tileloaddt1", "tileloadd", slowly from),
                (Passing::Left, Asking::Quickly(from)) => {
                    two_by_two!(operands, "tileloaddt1", "tileloadd", quickly from)
                }
                (Passing::Right, _) => two_by_two!(operands, "tileloadd", "tileloaddt1"),
                (Passing::Both, Asking::Nothing) => two_by_two!(operands, "tileloaddt1", "tileloaddt1"),
                (Passing::Both, Asking::Slowly(from)) => {
                    two_by_two!(operands, "tileloaddt1", "tileloaddt1", slowly from)
                }
                (Passing::Both, Asking::Quickly(from)) => {
                    two_by_two!(operands, "tileloaddt1", "tileloaddt1", quickly from)
                }
            },
            (1, 2) => asm!(
                "2:",
                "tileloadd tmm4, [{a} + {row}]",
                "tileloadd tmm6, [{b} + {pair}]",
                "tileloadd tmm7, [{b_right} + {pair}]",
                "tdpbf16ps tmm0, tmm4, tmm6",
                "tdpbf16ps tmm1, tmm4, tmm7",
                "add {a}, 1024",
                "add {b}, {block}",
                "add {b_right}, {block}",
                "dec {left}",
                "jnz 2b",
                a = inout(reg) left => _,
                b = inout(reg) right => _,
                b_right = inout(reg) right.byte_add(right_panel_bytes) => _,
                left = inout(reg) blocks => _,
                row = in(reg) ROW_BYTES,
                pair = in(reg) right_pair_bytes,
                block = in(reg) right_block_bytes,
                options(nostack),
            ),
            _ => asm!(
                "2:",
                "tileloadd tmm4, [{a} + {row}]",
                "tileloadd tmm6, [{b} + {pair}]",
                "tdpbf16ps tmm0, tmm4, tmm6",
                "add {a}, 1024",
                "add {b}, {block}",
                "dec {left}",
                "jnz 2b",
                a = inout(reg) left => _,
                b = inout(reg) right => _,
                left = inout(reg) blocks => _,
                row = in(reg) ROW_BYTES,
                pair = in(reg) right_pair_bytes,
                block = in(reg) right_block_bytes,
                options(nostack),
            ),
        }
    }
}
