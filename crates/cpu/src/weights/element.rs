//! What weights and KV are stored as, and how the right-hand side of a matrix product lies in memory.
//!
//! ```text
//!   f32   [k][width]          one k after the other
//!   bf16  [k/2][width][2]     pairs of k side by side: 64 bytes are 16 columns × 2 k, what an AMX tile wants, too
//! ```

use baton_fabric::PageOrder;
use half::bf16;

use crate::simd::vector::{LANES, Lanes, load_some};
use crate::weights::layout::BLOCK_DEPTH;

pub(crate) trait Element: Copy + Default + Send + Sync + 'static {
    /// As it appears in a `numerics_id`.
    const NAME: &'static str;
    /// Panels of a matrix are filled up with zeros to a multiple of this many k.
    const DEPTH_STEP: usize;
    /// Whether matrices may be [quantized](crate::weights::quant) or have [12 bits](crate::weights::bf12), which kernels expand.
    const EXPANDS: bool;
    /// The order of a KV page in terms of the fabric.
    const PAGE_ORDER: PageOrder;

    /// Of a weight; what steps compute is rounded in [`Lanes`].
    fn from_f32(x: f32) -> Self;
    fn to_le_bytes(self, bytes: &mut Vec<u8>);
    /// `None` if they are something else.
    fn as_bf16(elements: &[Self]) -> Option<&[bf16]>;

    /// One token's K: column `token` of as many k as the head has dimensions.
    ///
    /// # Safety
    /// That column is writable.
    unsafe fn store_column<L: Lanes>(head: &[f32], to: *mut Self, column: usize, width: usize);

    /// One token's V: all columns at `k`, whole vectors.
    ///
    /// # Safety
    /// They are writable; at the other k of the pair another thread may write.
    unsafe fn store_row<L: Lanes>(head: &[f32], to: *mut Self, k: usize, width: usize);

    /// Where (k, column) lies in a matrix of `width` columns.
    fn index(k: usize, column: usize, width: usize) -> usize;
}

impl Element for f32 {
    const NAME: &'static str = "f32";
    const DEPTH_STEP: usize = 2;
    const EXPANDS: bool = false;
    const PAGE_ORDER: PageOrder = PageOrder::PlainF32;

    #[inline(always)]
    fn from_f32(x: f32) -> Self {
        x
    }

    fn to_le_bytes(self, bytes: &mut Vec<u8>) {
        bytes.extend_from_slice(&f32::to_le_bytes(self));
    }

    fn as_bf16(_elements: &[Self]) -> Option<&[bf16]> {
        None
    }

    #[inline(always)]
    unsafe fn store_column<L: Lanes>(head: &[f32], to: *mut Self, column: usize, width: usize) {
        for (k, &value) in head.iter().enumerate() {
            // SAFETY: the caller's promise.
            unsafe { *to.add(Self::index(k, column, width)) = value };
        }
    }

    #[inline(always)]
    unsafe fn store_row<L: Lanes>(head: &[f32], to: *mut Self, k: usize, width: usize) {
        // SAFETY: the caller's promise.
        unsafe { std::ptr::copy_nonoverlapping(head.as_ptr(), to.add(Self::index(k, 0, width)), head.len()) };
    }

    #[inline(always)]
    fn index(k: usize, column: usize, width: usize) -> usize {
        k * width + column
    }
}

impl Element for bf16 {
    const NAME: &'static str = "bf16";
    const DEPTH_STEP: usize = BLOCK_DEPTH;
    const EXPANDS: bool = true;
    const PAGE_ORDER: PageOrder = PageOrder::InterleavedBf16;

    #[inline(always)]
    fn from_f32(x: f32) -> Self {
        Self::from_f32(x)
    }

    fn to_le_bytes(self, bytes: &mut Vec<u8>) {
        bytes.extend_from_slice(&bf16::to_le_bytes(self));
    }

    fn as_bf16(elements: &[Self]) -> Option<&[bf16]> {
        Some(elements)
    }

    #[inline(always)]
    unsafe fn store_column<L: Lanes>(head: &[f32], to: *mut Self, column: usize, width: usize) {
        for (i, values) in head.chunks(LANES).enumerate() {
            let mut pairs = [0_u32; LANES / 2];
            // SAFETY: 16 rounded values are 8 pairs.
            unsafe { load_some::<L>(values).store_bf16(pairs.as_mut_ptr().cast()) };
            for (pair, bits) in pairs.into_iter().enumerate().take(values.len() / 2) {
                // SAFETY: the caller's promise; the k of a pair are side by side.
                unsafe { to.add(Self::index(i * LANES + 2 * pair, column, width)).cast::<u32>().write(bits) };
            }
        }
    }

    #[inline(always)]
    unsafe fn store_row<L: Lanes>(head: &[f32], to: *mut Self, k: usize, width: usize) {
        for (i, values) in head.chunks(LANES).enumerate() {
            // SAFETY: the caller's promise; neighbouring columns are a pair apart.
            unsafe { load_some::<L>(values).store_bf16_apart(to.add(Self::index(k, i * LANES, width)).cast()) };
        }
    }

    #[inline(always)]
    fn index(k: usize, column: usize, width: usize) -> usize {
        (k / 2 * width + column) * 2 + k % 2
    }
}
