//! Intel AMX: eight tile registers of 16 rows × 64 bytes. `tdpbf16ps` multiplies 16 rows × 32 k of bf16 with 32 k × 16
//! columns and adds to 16 × 16 sums of f32, in the order that [bf16 matmuls](crate::matmul::bf16) follow everywhere.
//!
//! ```text
//!   sums   tmm0 tmm1      left   tmm4      right   tmm6 tmm7
//!          tmm2 tmm3             tmm5
//! ```
//!
//! Tile registers belong to the thread, not to a function: sums stay in them from one call here to the next.

#[cfg(test)]
mod emulated;
mod registers;

use std::arch::asm;
use std::arch::x86_64::{__cpuid, __cpuid_count, _xgetbv};
use std::marker::PhantomData;
use std::sync::OnceLock;

pub(crate) use self::registers::{Operands, add, add_many, begin, end};

/// Whether the machine has tiles for bf16 and the kernel lets this process use them.
pub(crate) fn available() -> bool {
    static AVAILABLE: OnceLock<bool> = OnceLock::new();
    *AVAILABLE.get_or_init(|| machine_has_tiles() && kernel_permits_tiles())
}

fn machine_has_tiles() -> bool {
    const OSXSAVE: u32 = 1 << 27;
    const AMX_BF16: u32 = 1 << 22;
    const AMX_TILE: u32 = 1 << 24;
    /// Configuration and data of tiles.
    const TILE_STATES: u64 = 0b11 << 17;
    let wanted = AMX_BF16 | AMX_TILE;
    let machine_has_them =
        __cpuid(0).eax >= 7 && __cpuid(1).ecx & OSXSAVE != 0 && __cpuid_count(7, 0).edx & wanted == wanted;
    // SAFETY: OSXSAVE shows that the instruction is there.
    machine_has_them && unsafe { xcr0() } & TILE_STATES == TILE_STATES
}

#[target_feature(enable = "xsave")]
fn xcr0() -> u64 {
    // SAFETY: register 0 always exists.
    unsafe { _xgetbv(0) }
}

/// Tile data is big, so Linux hands it out on request, to all threads of a process at once.
fn kernel_permits_tiles() -> bool {
    const ARCH_REQ_XCOMP_PERM: libc::c_ulong = 0x1023;
    const XFEATURE_XTILEDATA: libc::c_ulong = 18;
    // SAFETY: changes nothing but that permission.
    unsafe { libc::syscall(libc::SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) == 0 }
}

#[repr(C, align(64))]
struct Configuration {
    palette: u8,
    start_row: u8,
    reserved: [u8; 14],
    row_bytes: [u16; 16],
    rows: [u8; 16],
}

/// All eight tiles at their full size.
static FULL_TILES: Configuration = Configuration {
    palette: 1,
    start_row: 0,
    reserved: [0; 14],
    row_bytes: [64, 64, 64, 64, 64, 64, 64, 64, 0, 0, 0, 0, 0, 0, 0, 0],
    rows: [16, 16, 16, 16, 16, 16, 16, 16, 0, 0, 0, 0, 0, 0, 0, 0],
};

/// While it lives this thread's tiles can be used. Released ones cost nothing when the thread sleeps.
pub(crate) struct Configured {
    this_thread: PhantomData<*const ()>,
}

impl Configured {
    /// # Safety
    /// Tiles are [`available`], or emulated.
    pub(crate) unsafe fn enter() -> Self {
        #[cfg(test)]
        if emulated::in_use() {
            emulated::configure(true);
            return Self { this_thread: PhantomData };
        }
        // SAFETY: the caller's promise; the configuration is a valid one.
        unsafe { asm!("ldtilecfg [{}]", in(reg) &raw const FULL_TILES, options(nostack, readonly, preserves_flags)) };
        Self { this_thread: PhantomData }
    }
}

impl Drop for Configured {
    fn drop(&mut self) {
        #[cfg(test)]
        if emulated::in_use() {
            return emulated::configure(false);
        }
        // SAFETY: they were configured.
        unsafe { asm!("tilerelease", options(nostack, nomem, preserves_flags)) };
    }
}
