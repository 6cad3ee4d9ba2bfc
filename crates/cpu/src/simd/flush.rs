//! Denormal numbers count as zero in every kernel: tile registers know no other way, so the rest does the same.

/// While it lives this thread's vector unit takes denormals for zero and makes none.
pub(crate) struct Flushed {
    #[cfg(target_arch = "x86_64")]
    before: u32,
}

#[cfg(target_arch = "x86_64")]
impl Flushed {
    /// Flush to zero, and denormals are zero.
    const BITS: u32 = 1 << 15 | 1 << 6;

    pub(crate) fn enter() -> Self {
        let mut before = 0_u32;
        // SAFETY: every x86-64 has the register; it is written to a local.
        unsafe { std::arch::asm!("stmxcsr [{}]", in(reg) &raw mut before, options(nostack, preserves_flags)) };
        set_mxcsr(before | Self::BITS);
        Self { before }
    }
}

#[cfg(target_arch = "x86_64")]
impl Drop for Flushed {
    fn drop(&mut self) {
        set_mxcsr(self.before);
    }
}

#[cfg(target_arch = "x86_64")]
fn set_mxcsr(bits: u32) {
    // SAFETY: a value that the register had, perhaps with the two bits that every x86-64 has. Code compiled for the default
    // mode computes the same but for denormals, and it is called, never inlined, between here and the guard's end.
    unsafe { std::arch::asm!("ldmxcsr [{}]", in(reg) &raw const bits, options(nostack, preserves_flags)) };
}

#[cfg(not(target_arch = "x86_64"))]
impl Flushed {
    pub(crate) fn enter() -> Self {
        Self {}
    }
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use std::hint::black_box;

    use super::*;

    #[test]
    fn only_while_it_lives() {
        let product = || black_box(black_box(1e-20_f32) * black_box(1e-20_f32));
        assert!(product() > 0.0);
        let flushed = Flushed::enter();
        assert_eq!(product(), 0.0);
        drop(flushed);
        assert!(product() > 0.0);
    }
}
