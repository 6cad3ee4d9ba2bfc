//! Products of bf16 tiles that never touch memory.

use std::arch::asm;

use crate::simd::amx::{Configured, available};

const PRODUCTS: usize = 4;
const ROWS: usize = 16;
const COLUMNS: usize = 16;
const DEPTH: usize = 32;

/// Returns the number of operations, or `None` where there are no tiles.
pub(super) fn multiply(rounds: usize) -> Option<usize> {
    if !available() {
        return None;
    }
    if rounds == 0 {
        return Some(0);
    }
    // SAFETY: they are available.
    let _tiles = unsafe { Configured::enter() };
    // SAFETY: tiles are configured, and nothing else on this thread holds values in them.
    unsafe {
        asm!(
            "tilezero tmm0",
            "tilezero tmm1",
            "tilezero tmm2",
            "tilezero tmm3",
            "tilezero tmm4",
            "tilezero tmm5",
            "tilezero tmm6",
            "tilezero tmm7",
            "2:",
            "tdpbf16ps tmm0, tmm4, tmm6",
            "tdpbf16ps tmm1, tmm4, tmm7",
            "tdpbf16ps tmm2, tmm5, tmm6",
            "tdpbf16ps tmm3, tmm5, tmm7",
            "dec {rounds}",
            "jnz 2b",
            rounds = inout(reg) rounds => _,
            options(nomem, nostack),
        );
    }
    Some(rounds * PRODUCTS * 2 * ROWS * COLUMNS * DEPTH)
}
