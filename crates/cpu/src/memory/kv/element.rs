//! The element types of KV.

use baton_core::PAGE_TOKENS;
use baton_fabric::{Half, PageOrder};

use crate::simd::vector::{Lanes, padded};
use crate::weights::element::Element;

pub(crate) trait KvElement: Copy + Send + Sync + 'static {
    /// This element type's part of the `numerics_id`; empty where KV is stored as weights are.
    const NUMERICS: &'static str;
    const PAGE_ORDER: PageOrder;
    /// Whether keys are [scaled](super::KeyScales) before they are stored.
    const SCALES_KEYS: bool;

    /// Stores one token's K, which is rotated and scaled.
    ///
    /// # Safety
    /// `head` is K of one head of a page, and no other thread uses this token of it now.
    unsafe fn store_key<L: Lanes>(key: &[f32], head: *mut Self, token: usize);

    /// Stores one token's V.
    ///
    /// # Safety
    /// `head` is V of one head of a page, and no other thread uses this token of it now.
    unsafe fn store_value<L: Lanes>(value: &[f32], head: *mut Self, token: usize);

    /// Appends all data of one token of one head, dimensions ascending.
    ///
    /// # Safety
    /// `head` is K or V of one head of a page, and no thread writes this token of it now.
    unsafe fn export(head: *const Self, half: Half, token: usize, head_dim: usize, bytes: &mut Vec<u8>);
}

/// KV stored as weights are: K is the right-hand side of scores (k = dimension, columns = tokens), V that of values
/// (k = token, columns = dimensions).
impl<E: Element> KvElement for E {
    const NUMERICS: &'static str = "";
    const PAGE_ORDER: PageOrder = <E as Element>::PAGE_ORDER;
    const SCALES_KEYS: bool = false;

    #[inline(always)]
    unsafe fn store_key<L: Lanes>(key: &[f32], head: *mut E, token: usize) {
        // SAFETY: the caller's promise.
        unsafe { E::store_column::<L>(key, head, token, PAGE_TOKENS) };
    }

    #[inline(always)]
    unsafe fn store_value<L: Lanes>(value: &[f32], head: *mut E, token: usize) {
        // SAFETY: the caller's promise.
        unsafe { E::store_row::<L>(value, head, token, padded(value.len())) };
    }

    unsafe fn export(head: *const E, half: Half, token: usize, head_dim: usize, bytes: &mut Vec<u8>) {
        for dim in 0..head_dim {
            let index = match half {
                Half::Keys => E::index(dim, token, PAGE_TOKENS),
                Half::Values => E::index(token, dim, padded(head_dim)),
            };
            // SAFETY: an existing token and dimension; no writer by the caller's promise.
            unsafe { *head.add(index) }.to_le_bytes(bytes);
        }
    }
}
