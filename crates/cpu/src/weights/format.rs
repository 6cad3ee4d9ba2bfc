//! The forms in which weights of bf16 matmuls are stored, one panel of 16 columns at a time.

use half::bf16;

use crate::simd::vector::{LANES, Lanes};
use crate::weights::layout::{BLOCK_PAIRS, TILE, pair_stride};

/// Reads the blocks of one panel in turn. Whatever the form, a weight is multiplied as the same bf16.
pub(crate) trait WeightFormat {
    /// What the pairs of a block have in common.
    type Block<L: Lanes>;

    /// Prepares the next block. Forms that are expanded prefetch a later one.
    ///
    /// # Safety
    /// The panel has one more block.
    unsafe fn next<L: Lanes>(&mut self) -> Self::Block<L>;

    /// 16 columns at the even and the odd k of a pair.
    ///
    /// # Safety
    /// It is the last block that was prepared, and it has the pair.
    unsafe fn pair<L: Lanes>(block: &Self::Block<L>, pair: usize) -> [L; 2];

    /// Prefetches what lies ahead of a pair, where memory is read in step with the multiplication.
    #[inline(always)]
    fn prefetch<L: Lanes>(_block: &Self::Block<L>, _pair: usize) {}

    /// Expands the next blocks to tiles of bf16, one behind the other.
    ///
    /// # Safety
    /// The panel has `blocks` more, and as many tiles are writable at `to`.
    #[inline(always)]
    unsafe fn expand<L: Lanes>(&mut self, blocks: usize, to: *mut bf16) {
        for block in 0..blocks {
            // SAFETY: the caller's promise.
            unsafe {
                let (now, to) = (self.next::<L>(), to.add(block * TILE));
                for_each_pair!(L, |pair| {
                    let [even, odd] = Self::pair::<L>(&now, pair);
                    L::store_bf16_pairs(even, odd, to.add(pair * pair_stride(LANES)).cast());
                });
            }
        }
    }
}

/// Something done with a panel, compiled for each [`WeightFormat`]. `run` must be `#[inline(always)]`.
pub(crate) trait PanelKernel {
    fn run<L: Lanes, F: WeightFormat>(self, panel: F);
}

/// Does the same for each pair of k of a block. Where lanes are vectors the pair is a constant: shifts of quantized values want one.
macro_rules! for_each_pair {
    ($lanes:ident, |$pair:ident| $body:expr) => {
        if $lanes::TABLE_BYTES == 0 {
            for $pair in 0..16 {
                $body
            }
        } else {
            $crate::weights::format::for_each_pair!($pair, $body, 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15);
        }
    };
    ($pair:ident, $body:expr, $($number:literal)*) => {
        $({
            let $pair: usize = $number;
            $body
        })*
    };
}
pub(crate) use for_each_pair;

/// Columns of bf16 as they are multiplied: a panel of weights, or of keys or values.
pub(crate) struct Plain {
    /// The next block.
    next: *const bf16,
    /// Elements from one pair of k to the next.
    pair_stride: usize,
    /// Elements by which prefetches are ahead of a pair.
    ahead: isize,
}

impl Plain {
    /// Prefetch distance of weights.
    const AHEAD: isize = 24 * pair_stride(LANES) as isize;

    #[inline(always)]
    pub(crate) fn new(first: *const bf16, pair_stride: usize, ahead: isize) -> Self {
        Self { next: first, pair_stride, ahead }
    }

    #[inline(always)]
    pub(crate) fn weights(first: *const bf16) -> Self {
        Self::new(first, pair_stride(LANES), Self::AHEAD)
    }
}

/// A block in memory.
pub(crate) struct InMemory {
    first: *const bf16,
    pair_stride: usize,
    ahead: isize,
}

impl InMemory {
    #[inline(always)]
    fn at(&self, pair: usize) -> *const bf16 {
        self.first.wrapping_add(pair * self.pair_stride)
    }
}

impl WeightFormat for Plain {
    type Block<L: Lanes> = InMemory;

    #[inline(always)]
    unsafe fn next<L: Lanes>(&mut self) -> InMemory {
        let &mut Self { next: first, pair_stride, ahead } = self;
        self.next = first.wrapping_add(BLOCK_PAIRS * pair_stride);
        InMemory { first, pair_stride, ahead }
    }

    #[inline(always)]
    unsafe fn pair<L: Lanes>(block: &InMemory, pair: usize) -> [L; 2] {
        let columns = block.at(pair);
        // SAFETY: the caller's promise.
        unsafe { [L::load_bf16_even(columns.cast()), L::load_bf16_odd(columns.cast())] }
    }

    #[inline(always)]
    fn prefetch<L: Lanes>(block: &InMemory, pair: usize) {
        L::prefetch(block.at(pair).wrapping_offset(block.ahead).cast());
    }
}
