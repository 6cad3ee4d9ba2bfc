//! What comes next is asked for, at the pace at which the machine itself fetches ahead.

use half::bf16;

use super::TILE;
#[cfg(target_arch = "x86_64")]
use crate::cpu::tiles::Asking;

/// A stretch of memory that many products ask for, step by step with their blocks. It begins where a page does, if it can.
///
/// The machine itself fetches what is ahead in a page of memory once it has seen a dozen of the page's lines go by one after the
/// other. What is asked for before that is on its way for all of the time that memory takes, in one of the few places that lines of
/// rows need, too. So a page's first quarter is asked for in as much time as all the rest:
///
/// ```text
///   step    0    1    2 …  7  |  8                   9 …                 15
///   lines   0 1  2 3  4 5 …   |  16 17 18 19 20 21   22 23 24 25 26 27 … 63
/// ```
#[derive(Clone, Copy)]
pub(crate) struct Ahead {
    pub(crate) of: *const bf16,
    /// At the first block.
    pub(crate) step: usize,
}

#[cfg_attr(not(target_arch = "x86_64"), allow(dead_code, reason = "asked for by tiles"))]
impl Ahead {
    const SLOW_STEPS: usize = 8;
    const PAGE_STEPS: usize = 16;
    const PAGE_BYTES: usize = 4096;

    /// For so many blocks of one panel.
    pub(crate) const fn steps(blocks: usize) -> usize {
        blocks * TILE * size_of::<bf16>() / (Self::PAGE_BYTES / Self::PAGE_STEPS)
    }

    /// With this block of a product, and until which one it goes on so.
    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    pub(super) fn asking(&self, block: usize) -> (Asking, usize) {
        const SLOW_BYTES: usize = Ahead::SLOW_STEPS * Asking::SLOW_BYTES;
        const { assert!(SLOW_BYTES + (Self::PAGE_STEPS - Self::SLOW_STEPS) * Asking::QUICK_BYTES == Self::PAGE_BYTES) };
        let (page, step) = ((self.step + block) / Self::PAGE_STEPS, (self.step + block) % Self::PAGE_STEPS);
        let page = self.of.wrapping_byte_add(page * Self::PAGE_BYTES);
        match step.checked_sub(Self::SLOW_STEPS) {
            None => {
                let from = page.wrapping_byte_add(step * Asking::SLOW_BYTES);
                (Asking::Slowly(from), block + Self::SLOW_STEPS - step)
            }
            Some(quick) => {
                let from = page.wrapping_byte_add(SLOW_BYTES + quick * Asking::QUICK_BYTES);
                (Asking::Quickly(from), block + Self::PAGE_STEPS - step)
            }
        }
    }
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::*;

    #[test]
    fn every_line_is_asked_for_once() {
        const LINE: usize = 64;
        // Blocks of products that are no multiple of a page's steps.
        for blocks in [16, 18, 25] {
            let mut lines = Vec::new();
            for product in 0..16 {
                let ahead = Ahead { of: std::ptr::null(), step: product * blocks };
                let mut block = 0;
                while block < blocks {
                    let (asking, until) = ahead.asking(block);
                    assert!(until > block && (ahead.step + until).is_multiple_of(Ahead::SLOW_STEPS));
                    let (from, bytes) = match asking {
                        Asking::Slowly(from) => (from, Asking::SLOW_BYTES),
                        Asking::Quickly(from) => (from, Asking::QUICK_BYTES),
                        Asking::Nothing => unreachable!(),
                    };
                    let first = from.addr() / LINE;
                    lines.extend(first..first + (until.min(blocks) - block) * bytes / LINE);
                    block = until;
                }
            }
            assert!(lines.iter().copied().eq(0..lines.len()), "{blocks} blocks: {lines:?}");
        }
    }
}
